"""Selections of PromQL over a querier: every sample of the range bit for bit, or a refusal, or a named loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pytest

from support.data.heads import Record, apply, bits, canonical_of, id_of, new_head, register
from support.fakes.fake_stores import FakeStore, FakeStores, state
from support.servers.queriers import Context, ServedHeads, sources_over, stored
from support.servers.seams import END_MS, HELD_MS, NUMBERS, START_MS, STEP_MS, WINDOW_MS, Seam
from tsdb.client import ReadOptions
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.head.state import Hole
from tsdb.history.interface import HistoryHole
from tsdb.model.errors import (
    CorruptData,
    HoleInRange,
    InvalidRequest,
    OutOfCoverage,
    Overloaded,
    TsdbError,
    Unavailable,
)
from tsdb.model.times import time_text
from tsdb.model.window import TIME_MAX_MS
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.query.promql.storage import QuerierStorage
from tsdb.query.stores.interface import StoreReader
from tsdb.reader.read_call import AnswerBytes, ReadCalls, SelectLimits
from tsdb.selector.selectors import parse_selector
from tsdb.v1 import reader_pb2

SELECTOR = '{job="test"}'
# A stale marker, NaNs with other payloads, -0.0 and an infinity.
ODD_BITS = np.array(
    [0x7FF0000000000002, 0x7FF8000000000001, 0xFFF8DEADBEEF0001, 1 << 63, 0x7FF0000000000000], np.uint64
)
ALLOW_HOLES, ALLOW_STALE = ReadOptions(allow_holes=True), ReadOptions(allow_stale=True)


def answered(found: StoredSeries) -> dict[int, dict[int, float]]:
    """{number: {ts: value}} after a check of the layout: what kernels rely on."""
    arrays = {"starts": found.starts, "ts_ms": found.ts_ms, "values": found.values}
    assert [str(array.dtype) for array in arrays.values()] == ["int64", "int64", "float64"]
    for array in arrays.values():
        assert array.flags.c_contiguous
        assert array.flags.writeable, "a kernel would be compiled once more for arrays that cannot be written"
    assert (found.starts[0], found.starts[-1]) == (0, len(found.ts_ms))
    assert len(found.starts) == len(found.labels) + 1
    assert len(set(found.labels)) == len(found.labels)
    numbers = {canonical_of(number): number for number in range(100)}
    samples = {}
    for labels, start, end in zip(found.labels, found.starts[:-1], found.starts[1:], strict=True):
        times = found.ts_ms[start:end]
        assert end > start, "a series without samples"
        assert (np.diff(times) > 0).all()
        samples[numbers[labels]] = dict(zip(times.tolist(), found.values[start:end].tolist(), strict=True))
    return samples


@pytest.fixture
def seam() -> Seam:
    return Seam()


def spans(seam: Seam) -> dict[str, tuple[int, int]]:
    return {
        "memory": (seam.coverage_ms, END_MS),
        "history": (START_MS, START_MS + 2 * WINDOW_MS),
        "both": (START_MS, END_MS),
        "around the seam": (seam.coverage_ms - STEP_MS, seam.coverage_ms + STEP_MS),
    }


@pytest.mark.parametrize("span", ["memory", "history", "both", "around the seam"])
def test_a_selection_has_all_samples_of_memory_and_history(seam: Seam, span: str) -> None:
    start_ms, end_ms = spans(seam)[span]
    found = stored(seam.sources, SELECTOR, start_ms, end_ms)
    assert bits(answered(found)) == bits(seam.twin.samples(NUMBERS, start_ms, end_ms + 1))
    assert found.warnings == ()
    assert (seam.history.calls == []) == (span == "memory")


@pytest.mark.parametrize("at", ["history", "memory"])
def test_both_ends_of_a_range_are_included(seam: Seam, at: str) -> None:
    ts_ms = START_MS + 7 * STEP_MS if at == "history" else END_MS - 7 * STEP_MS
    assert answered(stored(seam.sources, "m_1", ts_ms, ts_ms)) == {n: {ts_ms: n + ts_ms / 8} for n in (1, 4)}
    assert list(answered(stored(seam.sources, "m_1", ts_ms, ts_ms + STEP_MS))[4]) == [ts_ms, ts_ms + STEP_MS]
    assert answered(stored(seam.sources, "m_1", ts_ms + 1, ts_ms + STEP_MS - 1)) == {}


def test_stale_markers_and_other_nans_are_kept_bit_for_bit() -> None:
    odd = ODD_BITS.view(np.float64)
    seam = Seam(
        value=lambda number, ts: float(odd[(number + ts // STEP_MS) % 7]) if (number + ts // STEP_MS) % 7 < 5 else 1.5,
        late=[(1, START_MS + 1, float(odd[0])), (1, END_MS - 1, float(odd[0]))],
    )
    for start_ms, end_ms in spans(seam).values():
        found = stored(seam.sources, SELECTOR, start_ms, end_ms)
        assert bits(answered(found)) == bits(seam.twin.samples(NUMBERS, start_ms, end_ms + 1))
        assert set(ODD_BITS.tolist()) <= set(found.values.view(np.uint64).tolist())


@pytest.mark.parametrize("late_ms", [STEP_MS // 2, 3 * WINDOW_MS, 9 * WINDOW_MS])
def test_a_sample_that_came_late_is_there_and_the_newest_of_a_time_wins(late_ms: int) -> None:
    new, same = END_MS - WINDOW_MS - late_ms + 1, END_MS - WINDOW_MS - late_ms // STEP_MS * STEP_MS
    seam = Seam(late=[(1, new, 77.0), (2, same, 78.0), (2, same, 79.0)])
    got = answered(stored(seam.sources, SELECTOR, START_MS, END_MS))
    assert (got[1][new], got[2][same]) == (77.0, 79.0)
    assert bits(got) == bits(seam.twin.samples(NUMBERS, START_MS, END_MS + 1))


EMPTY = {
    "no series": ("m_9", START_MS, END_MS),
    "no samples": (SELECTOR, END_MS + 10, END_MS + 20),
    "before all": (SELECTOR, START_MS - 20, START_MS - 10),
    "between samples": (SELECTOR, START_MS + 1, START_MS + 2),
    "reversed": (SELECTOR, END_MS, START_MS),
    "beyond all times": (SELECTOR, TIME_MAX_MS, 1 << 63),
    "up to the end of all times": (SELECTOR, END_MS + 1, 1 << 63),
}


@pytest.mark.parametrize("case", EMPTY)
def test_a_selection_without_samples_is_empty(seam: Seam, case: str) -> None:
    found = stored(seam.sources, *EMPTY[case])
    assert answered(found) == {}
    assert found.warnings == ()


class Several:
    """The Stores of some stores, each under a name."""

    in_process = None

    def __init__(self, **stores: Any) -> None:
        self._stores = [cast(StoreReader, _Named(store, name)) for name, store in stores.items()]

    def away(self) -> Sequence[tuple[str, str]]:
        return ()

    def all(self) -> Sequence[StoreReader]:
        return self._stores

    def refresh(self, timeout_s: float) -> None:
        pass


class _Named:
    def __init__(self, inner: Any, name: str) -> None:
        self._inner = inner
        self.name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def served(*partitions: int) -> ServedHeads:
    """Heads that hold their whole log; that of partition p has series 2 p + 6 and 2 p + 7, a sample each STEP_MS."""
    heads = {}
    for partition in partitions:
        heads[partition] = head = new_head(partition, hold_ms=END_MS)
        register(head, of_partition(partition))
        for at, ts in enumerate(range(START_MS, END_MS, STEP_MS)):
            apply(head, [Record(at, ts, tuple((n, ts, float(n)) for n in of_partition(partition)))])
        head.maintain()
    made = ServedHeads(heads)
    made.catch_up()
    return made


def of_partition(partition: int) -> tuple[int, int]:
    return 2 * partition + 6, 2 * partition + 7


def by_id(numbers: Sequence[int]) -> list[bytes]:
    return [canonical_of(number) for number in sorted(numbers, key=id_of)]


def test_series_of_several_partitions_and_stores_come_by_partition_and_id() -> None:
    stores = Several(even=served(0, 2).store, odd=served(1, 3).store)
    sources = sources_over(stores, None, window_ms=WINDOW_MS, partitions=4)
    found = stored(sources, SELECTOR, START_MS, END_MS)
    assert list(found.labels) == [labels for p in range(4) for labels in by_id(of_partition(p))]
    times = range(START_MS, END_MS, STEP_MS)
    assert answered(found) == {n: dict.fromkeys(times, float(n)) for p in range(4) for n in of_partition(p)}


@pytest.mark.parametrize("end_ms", [END_MS, END_MS - 3 * STEP_MS])
def test_partitions_that_need_history_keep_their_place_among_those_that_do_not(end_ms: int) -> None:
    seam, others = Seam(partition=1), served(0, 2)
    sources = sources_over(
        Several(seam=seam.served.store, others=others.store), seam.history, window_ms=WINDOW_MS, partitions=3
    )
    found = stored(sources, SELECTOR, START_MS, end_ms)
    assert list(found.labels) == by_id(of_partition(0)) + by_id(NUMBERS) + by_id(of_partition(2))
    got = answered(found)
    assert bits({n: got[n] for n in NUMBERS}) == bits(seam.twin.samples(NUMBERS, START_MS, end_ms + 1))
    times = range(START_MS, min(end_ms + 1, END_MS), STEP_MS)
    assert {n: got[n] for n in got if n not in NUMBERS} == {
        n: dict.fromkeys(times, float(n)) for p in (0, 2) for n in of_partition(p)
    }


def lag(seam: Seam) -> None:
    """The log goes on by 10 records and a minute, and the store does not."""
    partition = seam.served.partitions[0]
    assert partition.is_ready()
    seam.served.clock.advance(60_000)
    partition.observe_high_watermark(seam.head.next_offset + 10, seam.served.clock.monotonic())
    seam.served.clock.advance(1000)


@pytest.mark.parametrize("span", ["memory", "both"])
def test_a_partition_that_lags_is_refused_and_with_allow_stale_named(seam: Seam, span: str) -> None:
    lag(seam)
    start_ms, end_ms = spans(seam)[span]
    with pytest.raises(Unavailable, match="partition 0 is behind the log") as refused:
        stored(seam.sources, SELECTOR, start_ms, end_ms)
    assert refused.value.reason == "lagging"
    with pytest.raises(Unavailable):
        stored(seam.sources, SELECTOR, start_ms, end_ms, ALLOW_HOLES)
    found = stored(seam.sources, SELECTOR, start_ms, end_ms, ALLOW_STALE)
    assert bits(answered(found)) == bits(seam.twin.samples(NUMBERS, start_ms, end_ms + 1))
    assert found.warnings == (
        "partition 0 is behind the log: lagging, lag 62000 ms; samples acknowledged within this time may be missing",
    )


def test_a_partition_that_does_not_lag_has_no_warning_where_that_is_allowed(seam: Seam) -> None:
    found = stored(seam.sources, SELECTOR, START_MS, END_MS, ReadOptions(allow_stale=True, allow_holes=True))
    assert found.warnings == ()


HOLE = (START_MS + 3 * WINDOW_MS, START_MS + 4 * WINDOW_MS)


def test_a_hole_of_history_is_refused_and_with_allow_holes_named(seam: Seam) -> None:
    seam.history.add_hole(0, *HOLE)
    with pytest.raises(HoleInRange):
        stored(seam.sources, SELECTOR, START_MS, END_MS)
    with pytest.raises(HoleInRange):
        stored(seam.sources, SELECTOR, START_MS, HOLE[0], ALLOW_STALE)
    for span in ((START_MS, HOLE[0] - 1), (HOLE[1], END_MS)):
        assert stored(seam.sources, SELECTOR, *span, ALLOW_HOLES).warnings == ()
    found = stored(seam.sources, SELECTOR, HOLE[1] - 1, END_MS, ALLOW_HOLES)
    assert found.warnings == (
        f"samples of partition 0 from {time_text(HOLE[0])} until {time_text(HOLE[1])} may be lost: corrupt_record,"
        " record_offset 7",
    )
    assert bits(answered(found)) == bits(seam.twin.samples(NUMBERS, HOLE[1] - 1, END_MS + 1))


@pytest.mark.parametrize("span", ["memory", "both"])
def test_a_hole_of_memory_is_refused_until_it_is_accepted_and_with_allow_holes_named(seam: Seam, span: str) -> None:
    hole = Hole(START_MS, END_MS + 1, "corrupt_record", seam.head.next_offset)
    seam.head.contents.holes.add([hole])
    start_ms, end_ms = spans(seam)[span]
    with pytest.raises(HoleInRange):
        stored(seam.sources, SELECTOR, start_ms, end_ms)
    found = stored(seam.sources, SELECTOR, start_ms, end_ms, ALLOW_HOLES)
    assert found.warnings == (
        f"samples of partition 0 from {time_text(START_MS)} until {time_text(END_MS + 1)} may be lost: corrupt_record,"
        f" record_offset {hole.record_offset}",
    )
    record = HoleRecord(0, 0, hole.start_ms, hole.end_ms, hole.reason, hole.record_offset)
    seam.history.hole_list = [HistoryHole(record, True)]
    accepted = stored(seam.sources, SELECTOR, start_ms, end_ms)
    assert accepted.warnings == ()
    assert bits(answered(accepted)) == bits(answered(found))


def test_a_chunk_that_does_not_decode_is_refused_and_with_allow_holes_named(seam: Seam) -> None:
    broken = next(key for key in sorted(seam.history.rows, key=repr) if key.window_start_ms == START_MS)
    seam.history.rows[broken] = seam.history.rows[broken][:-1] + b"\0"
    with pytest.raises(CorruptData, match="allow_holes answers without it"):
        stored(seam.sources, SELECTOR, START_MS, END_MS)
    found = stored(seam.sources, SELECTOR, START_MS, END_MS, ALLOW_HOLES)
    (warning,) = found.warnings
    assert warning.startswith(f"samples of pack {broken.pack_id:016x} of partition 0 from {time_text(START_MS)} until")
    whole = seam.twin.samples(NUMBERS, START_MS, END_MS + 1)
    assert sum(map(len, whole.values())) - len(found.ts_ms) == WINDOW_MS // STEP_MS


def test_history_that_does_not_reach_memory_is_refused_whatever_is_allowed(seam: Seam) -> None:
    seam.history.loaded_by = {}
    for options in (ReadOptions(), ReadOptions(allow_stale=True, allow_holes=True)):
        with pytest.raises(Unavailable) as refused:
            stored(seam.sources, SELECTOR, START_MS, END_MS, options)
        assert refused.value.reason == "history_behind"
    assert answered(stored(seam.sources, SELECTOR, seam.coverage_ms, END_MS))


def test_a_range_before_memory_is_refused_without_a_history(seam: Seam) -> None:
    sources = sources_over(seam.sources.stores, None, window_ms=WINDOW_MS)
    with pytest.raises(OutOfCoverage):
        stored(sources, SELECTOR, seam.coverage_ms - 1, END_MS)
    assert answered(stored(sources, SELECTOR, seam.coverage_ms, END_MS))


class Forgetful(FakeStore):
    """Leaves `field` of every message out."""

    field = "trailer"

    def select_messages(self, request: reader_pb2.SelectRequest) -> Iterator[reader_pb2.SelectResponse]:
        for message in super().select_messages(request):
            message.ClearField(self.field)  # type: ignore[arg-type]  # a name of a field
            yield message


@pytest.mark.parametrize(
    ("field", "kind", "reason"), [("trailer", Unavailable, "answer_cut"), ("series", CorruptData, "answer_malformed")]
)
def test_an_answer_that_is_not_whole_is_refused(field: str, kind: type[TsdbError], reason: str) -> None:
    broken = Forgetful("a", [state(0)])
    broken.field = field
    sources = sources_over(FakeStores(broken, FakeStore("b", [state(1)])), None, window_ms=WINDOW_MS, partitions=2)
    with pytest.raises(kind) as refused:
        stored(sources, SELECTOR, START_MS, END_MS)
    assert refused.value.reason == reason


def test_a_store_that_refuses_is_replaced_by_the_next() -> None:
    first, second = FakeStore("a", [state()]), FakeStore("b", [state(lag_ms=5000)])
    first.fail = [Unavailable("gone", reason="unreachable")]
    assert answered(stored(sources_over(FakeStores(first, second), None, window_ms=400), "m", 1, 2)) == {}
    assert (len(first.asked), len(second.asked)) == (1, 1)


def test_the_request_to_a_store_states_range_and_options() -> None:
    store = FakeStore("a", [state()])
    options = ReadOptions(allow_stale=True, allow_holes=True, max_lag_ms=7)
    stored(sources_over(FakeStores(store), None, window_ms=400), "m", 1, 2, options, limits=SelectLimits(5, 6, 7))
    (asked,) = store.asked
    assert (asked.start_ms, asked.end_ms, asked.encoding) == (1, 3, reader_pb2.COLUMNS)
    assert (asked.series_max, asked.samples_max, asked.bytes_max) == (5, 6, 7)
    assert (asked.options.allow_stale, asked.options.allow_holes, asked.options.max_lag_ms) == (True, True, 7)


def test_equal_selections_of_a_query_are_read_once() -> None:
    store = FakeStore("a", [state()])
    sources = sources_over(FakeStores(store), None, window_ms=400)
    with ReadCalls().of(Context()) as call:
        storage = QuerierStorage(sources, SelectLimits(), call)
        first = storage.select(parse_selector("m"), 1, 2)
        assert storage.select(list(parse_selector("m")), 1, 2) is first
        storage.select(parse_selector("m"), 1, 3)
        storage.select(parse_selector("n"), 1, 2)
    assert len(store.asked) == 3


OVER: dict[str, tuple[SelectLimits, str]] = {
    "series": (SelectLimits(series_max=5), "series_limit"),
    "samples": (SelectLimits(samples_max=400), "samples_limit"),
    "bytes": (SelectLimits(bytes_max=6000), "bytes_limit"),
}


@pytest.mark.parametrize("case", OVER)
def test_a_selection_over_a_limit_is_refused(seam: Seam, case: str) -> None:
    limits, reason = OVER[case]
    with pytest.raises(Overloaded) as refused:
        stored(seam.sources, SELECTOR, START_MS, END_MS, limits=limits)
    assert refused.value.reason == reason


def test_a_limit_holds_for_all_stores_together() -> None:
    sources = sources_over(
        Several(even=served(0, 2).store, odd=served(1, 3).store), None, window_ms=WINDOW_MS, partitions=4
    )
    with pytest.raises(Overloaded, match="the answer has 8 series; limit is 5"):
        stored(sources, SELECTOR, END_MS - HELD_MS, END_MS, limits=SelectLimits(series_max=5))


@pytest.mark.parametrize("span", ["memory", "both"])
def test_the_memory_of_all_selections_is_reserved_until_the_query_ends(seam: Seam, span: str) -> None:
    start_ms, end_ms = spans(seam)[span]
    room = 6 << 20  # Of which a connection has half. A message counts as a MiB while it is read.
    calls = ReadCalls(60.0, AnswerBytes(room, wait_s=0.0, small_bytes=0))
    with calls.of(Context()) as call:
        storage = QuerierStorage(seam.sources, SelectLimits(), call)
        taken = 0
        for number in NUMBERS:
            selector = f'm_{number % 3}{{instance="i{number // 3}"}}'
            taken += len(storage.select(parse_selector(selector), start_ms, end_ms).ts_ms)
        call.hold((room // 2) - 16 * taken - 2000)
        with pytest.raises(Overloaded) as refused:
            call.hold((room // 2) - 16 * taken + 1)
        assert refused.value.reason == "answer_too_large"
    with calls.of(Context()) as call:
        call.hold(room // 2)


@pytest.mark.parametrize("span", ["memory", "history", "both"])
def test_a_selection_that_finds_no_memory_is_refused(seam: Seam, span: str) -> None:
    calls = ReadCalls(60.0, AnswerBytes(8_000, wait_s=0.0, small_bytes=0))
    with pytest.raises(Overloaded) as refused:
        stored(seam.sources, SELECTOR, *spans(seam)[span], calls=calls)
    assert refused.value.reason == "answer_too_large"


@pytest.mark.parametrize("span", ["memory", "both"])
def test_a_caller_that_left_ends_the_query(seam: Seam, span: str) -> None:
    gone = Context()
    gone.leave()
    with pytest.raises(Unavailable, match="no longer waits"):
        stored(seam.sources, SELECTOR, *spans(seam)[span], caller=gone)
    with pytest.raises(Unavailable, match="no longer waits"):
        stored(seam.sources, SELECTOR, *spans(seam)[span], caller=Context(0.0))


def test_matchers_that_select_everything_are_refused(seam: Seam) -> None:
    with pytest.raises(InvalidRequest) as refused:
        stored(seam.sources, '{a!="b"}', START_MS, END_MS)
    assert refused.value.reason == "selector_too_broad"
