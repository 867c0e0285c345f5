"""A querier with a shadow: an injected difference is found and kept. A shadow that is dead, slow, lying or of another
log changes no answer, delays no answer, and is counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.counters import sample
from support.fakes.fake_reader import FakeServer
from support.fakes.lying_reader import LyingReader
from support.servers.logs import wait_until
from support.servers.queriers import TOPIC_ID, Context
from support.servers.seams import END_MS, START_MS, Seam
from tsdb.client import SelectQuery
from tsdb.client.call import Method
from tsdb.client.query import query_range
from tsdb.client.result import SelectResult
from tsdb.model.clock import SystemClock
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import parse_labels
from tsdb.promql.evaluate.query import range_query
from tsdb.query.service import QuerierService
from tsdb.query.shadow.kept import KeptPairs, kept_files
from tsdb.query.shadow.shadow import WAITING_MAX, Shadow, ShadowOptions
from tsdb.query.shadow.target import HEADER, ShadowTarget, decoded
from tsdb.reader.read_call import SelectLimits
from tsdb.rules.memory import MemoryStorage
from tsdb.v1 import reader_pb2

WITHIN_S = 60.0
Metadata = list[tuple[str, str]]


class ShadowContext(Context):
    """A caller with metadata."""

    def __init__(self, metadata: Metadata | None = None) -> None:
        super().__init__(60.0)
        self._metadata = metadata or []

    def invocation_metadata(self) -> Metadata:
        return self._metadata


@pytest.fixture(scope="module")
def seam() -> Seam:
    return Seam()


@dataclass
class Rig:
    """A querier whose reads all go to a shadow, which holds the same samples."""

    seam: Seam
    shadow: Shadow
    server: FakeServer
    reader: LyingReader
    service: QuerierService
    folder: Path

    def select(self, metadata: Metadata | None = None) -> SelectResult:
        """The querier's answer for all samples."""
        request: Any = SelectQuery('{__name__=~".+"}', START_MS, END_MS).call().request
        messages = self.service.Select(request, ShadowContext(metadata))  # type: ignore[arg-type]  # a caller of a test
        found = decoded(Method.SELECT, request, messages)
        assert isinstance(found, SelectResult)
        return found


@pytest.fixture
def make(seam: Seam, tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    opened: list[Any] = []

    def made(
        *,
        lies: bool = False,
        timeout_s: float = 10.0,
        bytes_max: int = 64 << 20,
        share: float = 1.0,
        address: str = "",
        draw: Callable[[], float] = lambda: 0.0,
    ) -> Rig:
        server = FakeServer().__enter__()
        reader = LyingReader(server.address).__enter__()
        server.state.topic_id = TOPIC_ID
        fill(server, seam)
        target = ShadowTarget(
            address or (reader if lies else server).address, TOPIC_ID, timeout_s=timeout_s, bytes_max=bytes_max
        )
        shadow = Shadow(target, ShadowOptions(share, bytes_max, KeptPairs(tmp_path, 3)), SystemClock(), draw)
        shadow.start()
        opened.extend((shadow, reader, server))
        return Rig(seam, shadow, server, reader, QuerierService(seam.sources, SelectLimits(), seen=shadow), tmp_path)

    yield made
    for one in opened:
        if isinstance(one, Shadow):
            one.close()
            assert one.join(WITHIN_S)
        else:
            one.__exit__(None, None, None)


def fill(server: FakeServer, seam: Seam) -> None:
    """The samples of the querier, which is asked without a shadow."""
    request: Any = SelectQuery('{__name__=~".+"}', START_MS, END_MS).call().request
    whole = decoded(Method.SELECT, request, seam.service.Select(request, ShadowContext()))  # type: ignore[arg-type]
    assert isinstance(whole, SelectResult)
    for series in whole.series:
        server.samples[series.canonical] = list(zip(series.ts_ms.tolist(), series.values.tolist(), strict=True))


def results(result: str) -> float:
    return sample("tsdb_shadow_reads_total", result=result)


def wait_for(figure: Callable[[], float], above: float) -> None:
    wait_until(lambda: figure() > above, WITHIN_S)


def test_the_same_read_of_an_equal_shadow_is_equal(make: Callable[..., Rig]) -> None:
    rig, before = make(), results("equal")
    rig.select()
    wait_for(lambda: results("equal"), before)
    assert kept_files(rig.folder) == []
    assert {sample("tsdb_shadow_duration_seconds_count", side=side) > 0 for side in ("own", "shadow")} == {True}


def test_a_difference_is_found_counted_and_kept_with_both_sides(make: Callable[..., Rig]) -> None:
    rig, before = make(), sample("tsdb_shadow_differences_total", kind="values")
    labels = next(iter(rig.server.samples))
    ts_ms, value = rig.server.samples[labels][5]
    rig.server.samples[labels][5] = ts_ms, value + 1
    whole = rig.select()
    wait_for(lambda: sample("tsdb_shadow_differences_total", kind="values"), before)
    wait_until(lambda: len(kept_files(rig.folder)) == 1, WITHIN_S)
    text = kept_files(rig.folder)[0].read_text()
    assert f'[{ts_ms}, "{value!r}", "{value + 1!r}"]' in text
    assert whole.samples == rig.select().samples


def test_kept_reads_are_bounded(make: Callable[..., Rig]) -> None:
    rig, before = make(), results("different")
    rig.server.samples.popitem()
    for _ in range(5):
        rig.select()
    wait_until(lambda: results("different") == before + 5, WITHIN_S)
    wait_until(lambda: len(kept_files(rig.folder)) == 3, WITHIN_S)


def test_a_promql_query_is_compared_too(make: Callable[..., Rig]) -> None:
    rig = make()
    request: Any = query_range('sum({__name__=~".+"})', END_MS - 1000, END_MS - 500, 50).request
    before = results("equal")
    list(rig.service.Query(request, ShadowContext()))  # type: ignore[arg-type]
    wait_for(lambda: results("equal"), before)
    rig.server.samples.popitem()
    before = results("different")
    list(rig.service.Query(request, ShadowContext()))  # type: ignore[arg-type]
    wait_for(lambda: results("different"), before)


def test_a_result_of_the_http_api_is_compared_too(make: Callable[..., Rig]) -> None:
    rig, storage = make(), MemoryStorage()
    for labels, rows in rig.server.samples.items():
        storage.add(tuple(parse_labels(labels)), rows)
    request: Any = query_range("count(m)", END_MS - 1000, END_MS - 500, 50).request
    found = range_query(request.query, storage, request.start_ms, request.end_ms, request.step_ms)
    before = results("equal")
    rig.shadow.result(lambda: request, found, 0.1)
    wait_for(lambda: results("equal"), before)


def test_a_share_of_the_reads_goes_to_the_shadow(make: Callable[..., Rig]) -> None:
    draws = iter([0.2, 0.3, 0.9, 0.1])
    rig = make(share=0.25, draw=lambda: next(draws))
    before = results("equal")
    for _ in range(4):
        rig.select()
    wait_until(lambda: results("equal") == before + 2, WITHIN_S)
    assert len(rig.server.received(reader_pb2.SelectRequest)) == 2


def test_a_read_that_comes_from_a_shadow_goes_to_no_other_one(make: Callable[..., Rig]) -> None:
    rig, before = make(), results("equal")
    rig.select([(HEADER, "1")])
    rig.select()
    wait_until(lambda: results("equal") == before + 1, WITHIN_S)
    (metadata,) = [
        meta
        for request, meta in zip(rig.server.requests, rig.server.metadata, strict=True)
        if isinstance(request, reader_pb2.SelectRequest)
    ]
    assert metadata[HEADER] == "1"


def test_a_dead_shadow_is_counted_and_changes_no_answer(make: Callable[..., Rig]) -> None:
    before = sample("tsdb_shadow_failures_total", reason="unreachable")
    rig = make(address="127.0.0.1:1")
    assert rig.select().samples > 0
    wait_for(lambda: sample("tsdb_shadow_failures_total", reason="unreachable"), before)


def test_a_slow_shadow_fills_its_queue_and_delays_no_answer(make: Callable[..., Rig]) -> None:
    rig, before = make(lies=True, timeout_s=600.0), results("equal")
    rig.select()
    wait_for(lambda: results("equal"), before)
    rig.reader.released.clear()
    dropped = sample("tsdb_shadow_dropped_total", reason="queue_full")
    samples = {rig.select().samples for _ in range(WAITING_MAX + 10)}
    assert len(samples) == 1
    assert sample("tsdb_shadow_dropped_total", reason="queue_full") == dropped + 10
    assert results("equal") == before + 1, "all reads were answered before the shadow answered one"
    rig.reader.released.set()
    wait_until(lambda: results("equal") == before + 1 + WAITING_MAX, 4 * WITHIN_S)


def test_answers_above_the_budget_are_dropped_and_their_bytes_given_back(make: Callable[..., Rig]) -> None:
    rig, before = make(bytes_max=1000), sample("tsdb_shadow_dropped_total", reason="bytes")
    assert rig.select().samples > 0
    assert sample("tsdb_shadow_dropped_total", reason="bytes") == before + 1
    assert sample("tsdb_shadow_bytes") == 0


def test_a_shadow_that_answers_without_an_end_is_cut(make: Callable[..., Rig]) -> None:
    rig, before = make(lies=True, bytes_max=1 << 20), sample("tsdb_shadow_failures_total", reason="shadow_too_large")
    frame = reader_pb2.SelectResponse(raw=[reader_pb2.RawFrame(values=bytes(100_000))])
    rig.reader.lie = lambda method, request, messages: itertools.repeat(frame) if method == "Select" else messages
    assert rig.select().samples > 0
    wait_for(lambda: sample("tsdb_shadow_failures_total", reason="shadow_too_large"), before)


def test_a_shadow_that_leaves_its_partitions_out_differs(make: Callable[..., Rig]) -> None:
    rig, before = make(lies=True), sample("tsdb_shadow_differences_total", kind="coverage")
    empty = reader_pb2.SelectResponse(header=reader_pb2.SelectHeader(), trailer=reader_pb2.SelectTrailer())
    rig.reader.lie = lambda method, request, messages: iter([empty]) if method == "Select" else messages
    assert rig.select().samples > 0
    wait_for(lambda: sample("tsdb_shadow_differences_total", kind="coverage"), before)


def test_a_shadow_that_answers_nonsense_is_counted(make: Callable[..., Rig]) -> None:
    rig, before = make(lies=True), sample("tsdb_shadow_failures_total", reason="answer_malformed")
    frame = reader_pb2.SelectResponse(raw=[reader_pb2.RawFrame(partition=7, counts=bytes(7), values=b"x")])
    rig.reader.lie = lambda method, request, messages: iter([frame]) if method == "Select" else messages
    assert rig.select().samples > 0
    wait_for(lambda: sample("tsdb_shadow_failures_total", reason="answer_malformed"), before)


def test_a_shadow_of_another_log_gets_no_read(make: Callable[..., Rig]) -> None:
    rig, before = make(), sample("tsdb_shadow_dropped_total", reason="wrong_log")
    rig.server.state.topic_id = "another"
    for _ in range(3):
        rig.select()
    wait_until(lambda: sample("tsdb_shadow_dropped_total", reason="wrong_log") == before + 3, WITHIN_S)
    assert not rig.server.received(reader_pb2.SelectRequest)


def test_a_shadow_that_is_replaced_by_one_of_another_log_is_left_with_its_first_answer(
    make: Callable[..., Rig],
) -> None:
    rig, before = make(), sample("tsdb_shadow_dropped_total", reason="wrong_log")
    equal, different = results("equal"), results("different")
    rig.select()
    wait_for(lambda: results("equal"), equal)
    rig.server.state.topic_id = "another"
    for _ in range(3):
        rig.select()
    wait_until(lambda: sample("tsdb_shadow_dropped_total", reason="wrong_log") == before + 3, WITHIN_S)
    assert len(rig.server.received(reader_pb2.SelectRequest)) < 4
    assert results("different") == different


def test_a_shadow_that_shows_no_partition_gets_no_read_until_it_does(make: Callable[..., Rig]) -> None:
    reason = "shadow_without_partitions"
    rig, before, equal = make(lies=True), sample("tsdb_shadow_failures_total", reason=reason), results("equal")
    rig.reader.lie = lambda method, request, messages: iter([reader_pb2.CoverageResponse()])
    rig.select()
    wait_for(lambda: sample("tsdb_shadow_failures_total", reason=reason), before)
    rig.reader.lie = None
    rig.select()
    wait_for(lambda: results("equal"), equal)
    assert rig.reader.calls["Select"] == 1


def test_the_promql_of_reads_is_not_compared_with_a_store(make: Callable[..., Rig]) -> None:
    rig, before = make(), sample("tsdb_shadow_dropped_total", reason="no_promql")
    equal = results("equal")
    rig.select()
    wait_for(lambda: results("equal"), equal)
    rig.server.fail.append(InvalidRequest("a store does not evaluate PromQL", reason="no_promql"))
    request: Any = query_range("count(m)", END_MS - 1000, END_MS - 500, 50).request
    list(rig.service.Query(request, ShadowContext()))  # type: ignore[arg-type]
    wait_for(lambda: sample("tsdb_shadow_dropped_total", reason="no_promql"), before)


def test_a_kept_read_names_the_experiment(make: Callable[..., Rig]) -> None:
    rig = make()
    rig.server.experiment = "trial"
    rig.server.samples.popitem()
    rig.select()
    wait_until(lambda: len(kept_files(rig.folder)) == 1, WITHIN_S)
    assert '"experiment": "trial"' in kept_files(rig.folder)[0].read_text()


def test_reads_that_wait_at_the_end_are_dropped(make: Callable[..., Rig]) -> None:
    rig, before = make(), sample("tsdb_shadow_dropped_total", reason="closing")
    rig.shadow.close()
    assert rig.select().samples > 0
    assert sample("tsdb_shadow_dropped_total", reason="closing") == before + 1
    assert sample("tsdb_shadow_bytes") == 0
