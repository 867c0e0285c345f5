"""Stores with answers set by a test: for routing, fan-out and the requests of a querier to each store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from support.servers.queriers import TOPIC_ID
from tsdb.answer.answer import Answer, ExemplarsAnswer, LabelsAnswer, SeriesAnswer, WatchAnswer
from tsdb.answer.spec import ExemplarsSpec, LabelsSpec, SelectSpec, SeriesSpec, WatchSpec
from tsdb.answer.state import MemoryState
from tsdb.model.errors import TsdbError
from tsdb.reader.read_call import Caller
from tsdb.v1 import common_pb2, reader_pb2
from tsdb.wire.select import decoded, encode_select
from tsdb.wire.series import decode_series_answer, encode_labels, encode_series
from tsdb.wire.state import decode_states, encode_header


def state(
    partition: int = 0,
    *,
    coverage_ms: int = 0,
    since: int = 0,
    ready: bool = True,
    lag_ms: int = 0,
    from_start: bool = False,
    topic_id: str = TOPIC_ID,
) -> MemoryState:
    """The state of one partition in a store."""
    return MemoryState(
        partition,
        topic_id=topic_id,
        since_offset=since,
        coverage_start_ms=coverage_ms,
        ready=ready,
        lag_ms=lag_ms,
        lag_records=0,
        from_start=from_start,
    )


class FakeStore:
    """A StoreReader, whose answers are messages that are decoded as those of a remote store. `fail`: raised by the next
    calls, in order. `asked`: all requests, in order. A Select answers no series, in one message.
    """

    def __init__(self, name: str, states: Sequence[MemoryState]) -> None:
        self._name = name
        self.apart = False
        self.may_be_silent = True
        self.is_suspect = False
        self.known = {one.partition: one for one in states}
        self.fail: list[TsdbError] = []
        self.asked: list[Any] = []
        self.watched: list[WatchAnswer | TsdbError] = []

    @property
    def name(self) -> str:
        return self._name

    def states(self) -> Mapping[int, MemoryState]:
        return self.known

    def suspect(self) -> None:
        self.is_suspect = True

    def refresh(self, timeout_s: float) -> None:
        pass

    def select(self, spec: SelectSpec, caller: Caller) -> Iterator[Answer]:
        return decoded(self.select_messages(encode_select(spec)))

    def select_messages(self, request: reader_pb2.SelectRequest) -> Iterator[reader_pb2.SelectResponse]:
        self._ask(request)
        yield reader_pb2.SelectResponse(
            header=self._header(request.options.partitions),
            series=[common_pb2.SeriesBlock(partition=partition) for partition in request.options.partitions],
            trailer=reader_pb2.SelectTrailer(),
        )

    def series(self, spec: SeriesSpec, caller: Caller) -> Iterator[SeriesAnswer]:
        for message in self.series_messages(encode_series(spec)):
            yield decode_series_answer(message)

    def series_messages(self, request: reader_pb2.SeriesRequest) -> Iterator[reader_pb2.SeriesResponse]:
        self._ask(request)
        yield reader_pb2.SeriesResponse(header=self._header(request.options.partitions))
        for partition in request.options.partitions:
            yield reader_pb2.SeriesResponse(series=common_pb2.SeriesBlock(partition=partition))

    def labels(self, spec: LabelsSpec, caller: Caller) -> Iterator[LabelsAnswer]:
        request = encode_labels(spec)
        self._ask(request)
        header = self._header(request.options.partitions)
        yield LabelsAnswer(decode_states(header), (), ["from", self._name])

    def exemplars(self, spec: ExemplarsSpec, caller: Caller) -> Iterator[ExemplarsAnswer]:
        self._ask(spec)
        yield ExemplarsAnswer([self.known[partition] for partition in spec.options.partitions])

    def cardinality(
        self, request: reader_pb2.CardinalityRequest, caller: Caller
    ) -> Iterator[reader_pb2.CardinalityResponse]:
        self._ask(request)
        yield reader_pb2.CardinalityResponse(
            header=self._header(request.options.partitions), parts=reader_pb2.CardinalityParts()
        )

    def watch(self, spec: WatchSpec, caller: Caller) -> Iterator[WatchAnswer]:
        self._ask(spec)
        for message in self.watched:
            if isinstance(message, TsdbError):
                raise message
            yield message

    def _ask(self, request: Any) -> None:
        self.asked.append(request)
        if self.fail:
            raise self.fail.pop(0)

    def _header(self, partitions: Sequence[int]) -> reader_pb2.SelectHeader:
        return encode_header([self.known[partition] for partition in partitions], ())


class FakeStores:
    """The Stores of some fake stores."""

    in_process = None

    def __init__(self, *stores: FakeStore) -> None:
        self.stores = stores

    def away(self) -> Sequence[tuple[str, str]]:
        return ()

    def all(self) -> Sequence[FakeStore]:
        return self.stores

    def refresh(self, timeout_s: float) -> None:
        pass
