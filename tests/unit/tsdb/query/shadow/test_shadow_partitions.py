"""A store as a shadow may hold some partitions: it gets their part of a read, and is compared in it."""

from __future__ import annotations

import struct
from typing import Any

from support.fakes.fake_reader import FakeServer
from tsdb.client.call import Method
from tsdb.client.query import query_range
from tsdb.client.result import SelectResult
from tsdb.query.shadow.target import ShadowTarget, decoded
from tsdb.v1 import common_pb2, reader_pb2


def test_a_shadow_of_some_partitions_gets_the_part_of_a_read_that_is_theirs() -> None:
    """The shadow holds partition 0."""
    with FakeServer() as server:
        target = ShadowTarget(server.address, server.state.topic_id, timeout_s=10.0, bytes_max=1 << 20)
        target.check_log()

        def part(partitions: list[int], after: list[int]) -> Any:
            tokens = [common_pb2.Token(topic_id="t", partition=partition) for partition in after]
            options = reader_pb2.ReadOptions(partitions=partitions, after=tokens)
            found = target.part_of(Method.SELECT, reader_pb2.SelectRequest(end_ms=5, options=options))
            if found is None:
                return None
            assert found.end_ms == 5
            return list(found.options.partitions), [token.partition for token in found.options.after]

        assert part([], []) == ([], [])
        assert part([0, 1], [1, 0]) == ([0], [0])
        assert part([], [1]) == ([], [])
        assert part([1], []) is None
        query: Any = query_range("count(m)", 1000, 2000, 50).request
        assert target.part_of(Method.QUERY, query) is query
        target.close()


def test_an_answer_is_compared_in_the_partitions_of_the_shadow() -> None:
    def block(partition: int, series_id: int) -> common_pb2.SeriesBlock:
        return common_pb2.SeriesBlock(partition=partition, series_ids=series_id.to_bytes(8, "little"))

    def frame(partition: int, value: float) -> reader_pb2.RawFrame:
        return reader_pb2.RawFrame(
            partition=partition,
            counts=struct.pack("<I", 1),
            ts_ms=struct.pack("<q", 7),
            values=struct.pack("<d", value),
        )

    states = [common_pb2.PartitionState(partition=number, topic_id="t") for number in range(2)]
    answer = reader_pb2.SelectResponse(
        header=reader_pb2.SelectHeader(partitions=states),
        series=[block(0, 5), block(1, 6)],
        raw=[frame(0, 1.5), frame(1, 2.5)],
        trailer=reader_pb2.SelectTrailer(series=2, samples=2),
    )
    request = reader_pb2.SelectRequest(start_ms=0, end_ms=10)
    whole = decoded(Method.SELECT, request, [answer])
    part = decoded(Method.SELECT, request, [answer], {1})
    assert isinstance(whole, SelectResult)
    assert isinstance(part, SelectResult)
    assert (whole.series_ids.tolist(), part.series_ids.tolist()) == ([5, 6], [6])
    assert (part.values.tolist(), [state.partition for state in part.partitions]) == ([2.5], [1])
