"""The chunk stage beyond the property tests: losses, limits, trimmed logs, pace and ticks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from support.data.announcements import joined
from support.data.exemplars import records_of
from support.data.heads import SMALL_SLICES, Record, announcement, decoded_of, id_of, positions_of
from support.data.heads import SMALL_TIMES as TIMES
from support.oracles.chunk_twin import pack_of
from tsdb.chunks.progress import Progress
from tsdb.chunks.stage import ChunkStage
from tsdb.chunks.window import due_times
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.codec.chunk.key import ChunkKey, HoleKey, Kind, RecordKey, WindowKey, decode_key
from tsdb.codec.chunk.marker import decode_hole
from tsdb.codec.records.log_record import decode_records
from tsdb.head.state import HeadLimits
from tsdb.model.errors import ConfigMismatch, Overloaded
from tsdb.model.time_set import PRODUCTION, SliceLengths

START_MS = 4_000  # Slices of a window. They are 400 ms long, with a grace of 5.
END_MS = START_MS + 400
LATER_MS = 1 << 60


class Bench:
    """A stage from offset 0 on, and everything it wrote."""

    def __init__(self, progress: Progress | None = None, *, series: int = 6, limits: HeadLimits | None = None) -> None:
        self.stage = ChunkStage(
            3, progress or Progress(0, START_MS), 0, times=TIMES, slices=SMALL_SLICES, limits=limits
        )
        self.stage.register(*joined([announcement(number) for number in range(series)], broker_ms=LATER_MS))
        self.written: dict[RecordKey, bytes] = {}

    def apply(self, *records: Record) -> None:
        decoded = decoded_of(records)
        self.stage.unknown_ids(decoded)
        self.stage.apply(decoded, *positions_of(records))

    def emit(self, now_ms: int = LATER_MS, *, emissions_max: int = 1_000) -> list[RecordKey]:
        """Emit due output; returns its keys in order."""
        keys: list[RecordKey] = []
        while emissions_max > 0 and (emission := self.stage.due(now_ms)) is not None:
            emissions_max -= 1
            for record in (*emission.records, *emission.markers):
                keys.append(decode_key(record.key))
                self.written[keys[-1]] = record.value
            self.stage.finish(emission)
        return keys

    def samples(self, *kinds: Kind) -> set[tuple[int, int]]:
        """(series id, ts_ms) in chunks of these kinds."""
        found: set[tuple[int, int]] = set()
        for key, value in self.written.items():
            if isinstance(key, ChunkKey) and key.kind in kinds:
                chunk = decode_chunk(value)
                ids = np.repeat(chunk.series_id, np.diff(chunk.sample_start)).tolist()
                found |= set(zip(ids, chunk.ts_ms.tolist(), strict=True))
        return found


def live(offset: int, ts_ms: int, numbers: Sequence[int] = (0,)) -> Record:
    return Record(offset, ts_ms, tuple((number, ts_ms, float(ts_ms)) for number in numbers))


@pytest.mark.slow
def test_an_imports_tick_drops_nothing_that_was_not_emitted() -> None:
    bench = Bench()
    bench.apply(live(0, START_MS), Record(1, 3 * 86_400_000 + START_MS, tick=True))
    bench.emit(emissions_max=1)  # Hundreds of thousands of empty windows follow.
    assert (id_of(0), START_MS) in bench.samples(Kind.BASE)


def test_chunks_are_due_when_their_window_closed_or_their_late_minute_ended() -> None:
    bench = Bench()
    late_at = END_MS + TIMES.grace_ms + 1
    bench.apply(live(0, START_MS), Record(1, late_at), Record(2, late_at, ((0, START_MS + 1, 1.0),)))
    bench.apply(live(3, late_at + 3 * TIMES.late_minute_ms))
    due: dict[Kind, int | None] = {}
    while (emission := bench.stage.due(LATER_MS)) is not None:
        for record in emission.records:
            key = decode_key(record.key)
            assert isinstance(key, ChunkKey)
            due[key.kind] = record.due_ms
        bench.stage.finish(emission)
    minute_end = (late_at // TIMES.late_minute_ms + 1) * TIMES.late_minute_ms
    assert due == {Kind.BASE: END_MS + TIMES.grace_ms, Kind.LATE: minute_end}


def test_samples_of_unknown_series_are_a_hole_of_their_pack_and_in_no_chunk() -> None:
    bench = Bench(series=1)
    bench.apply(
        live(0, START_MS, [0, 5]),
        live(1, END_MS + 5, [0]),
        live(2, END_MS + 6),
        Record(3, END_MS + 6, ((5, START_MS, 1.0),)),
    )
    bench.apply(live(4, END_MS + 500))
    bench.emit()
    holes = [decode_hole(value) for key, value in bench.written.items() if isinstance(key, HoleKey)]
    assert {(hole.partition, hole.reason, hole.record_offset) for hole in holes} == {
        (3, "unknown_series", 0),
        (3, "unknown_series", 3),
    }
    assert {(hole.start_ms, hole.end_ms) for hole in holes} == {(START_MS, START_MS + 1)}
    assert {series for series, _ in bench.samples(Kind.BASE, Kind.LATE)} == {id_of(0)}


def test_an_unknown_series_too_far_ahead_is_ignored_and_no_hole() -> None:
    bench = Bench(series=1)
    bench.apply(Record(0, START_MS, ((5, START_MS + 16, 1.0), (0, START_MS, 1.0))), Record(1, START_MS, ((4, 0, 1.0),)))
    assert [key.record_offset for key in bench.emit() if isinstance(key, HoleKey)] == [1]


def test_a_corrupt_record_is_a_hole_over_every_time_it_could_have_had() -> None:
    bench = Bench()
    records = decode_records(b"nonsense", np.array([0, 8], np.int64))
    bench.stage.apply(records, np.array([7], np.int64), np.array([START_MS], np.int64))
    (key,) = bench.emit()
    assert key == HoleKey(0, START_MS - TIMES.accept_past_ms, START_MS + TIMES.ahead_ms + 1, 7)


def test_windows_that_the_log_does_not_have_whole_are_skipped() -> None:
    bench = Bench(Progress(0, START_MS, whole_from_ms=END_MS))
    bench.apply(live(0, START_MS + 100), live(1, END_MS + 10), Record(2, END_MS + 405))
    keys = bench.emit()
    assert WindowKey(START_MS) not in keys
    assert WindowKey(END_MS) in keys
    assert bench.samples(Kind.BASE) == {(id_of(0), END_MS + 10)}
    assert bench.stage.progress == Progress(2, END_MS + 400, whole_from_ms=END_MS)


def test_late_samples_of_such_windows_are_emitted_all_the_same() -> None:
    bench = Bench(Progress(0, START_MS, whole_from_ms=END_MS))
    bench.apply(live(0, END_MS + 10), Record(1, END_MS + 11, ((0, START_MS, 1.0),)), Record(2, END_MS + 30))
    bench.emit()
    assert bench.samples(Kind.LATE) == {(id_of(0), START_MS)}


def test_packs_are_due_over_the_spread_and_overdue_packs_at_once() -> None:
    bench = Bench()
    bench.apply(live(0, START_MS, range(6)), Record(1, END_MS + 5))
    packs = np.array([pack_of(number) for number in range(6)], np.uint64)
    due = due_times(packs, END_MS, TIMES)
    assert due.min() >= END_MS + 5
    assert due.max() < END_MS + 5 + TIMES.spread_ms
    assert bench.emit(int(due.min()) - 1) == []
    for now_ms in range(END_MS + 5, END_MS + 5 + TIMES.spread_ms):
        emitted = [key.pack_id for key in bench.emit(now_ms) if isinstance(key, ChunkKey)]
        assert sorted(emitted) == sorted(packs[due == now_ms].tolist())
    assert bench.emit() == []
    late = Bench()
    late.apply(live(0, START_MS, range(6)), Record(1, END_MS + 5))
    assert len(late.emit()) == 6 + 1


def test_due_times_ascend_with_pack_ids_and_reach_both_ends() -> None:
    packs = np.sort(np.random.default_rng(1).integers(0, 2**64, 100_000, np.uint64))
    due = due_times(packs, 0, PRODUCTION) - PRODUCTION.grace_ms
    assert (np.diff(due) >= 0).all()
    assert (due[0], due[-1]) == (pytest.approx(0, abs=1000), pytest.approx(PRODUCTION.spread_ms, abs=1000))
    assert (
        due_times(np.array([0, 2**64 - 1], np.uint64), 0, PRODUCTION).max() < PRODUCTION.grace_ms + PRODUCTION.spread_ms
    )


def test_due_changes_nothing() -> None:
    bench = Bench()
    bench.apply(live(0, START_MS, range(6)), Record(1, END_MS + 5))
    first, again = bench.stage.due(LATER_MS), bench.stage.due(LATER_MS)
    assert first == again
    assert first is not None


def test_a_full_head_applies_nothing_and_goes_on_when_there_is_room() -> None:
    bench = Bench()
    object.__setattr__(bench.stage.head.contents.limits, "memory_hard_bytes", 1)
    with pytest.raises(Overloaded) as full:
        bench.apply(live(0, START_MS))
    assert full.value.reason == "memory_hard"
    assert bench.stage.progress == Progress(0, START_MS)


def test_memory_goes_with_the_windows_that_were_emitted() -> None:
    bench = Bench()
    for window in range(20):
        start_ms = START_MS + 400 * window
        bench.apply(*(live(window * 40 + at, start_ms + 10 * at, range(6)) for at in range(40)))
        bench.stage.maintain()
        bench.emit()
    assert bench.stage.head.sizes().samples <= 2 * 6 * 40


def test_a_tick_is_due_at_the_end_of_a_minute_with_late_samples_else_of_a_window() -> None:
    bench = Bench()
    assert bench.stage.tick_due_ms == END_MS + 5
    bench.apply(live(0, END_MS + 7))
    assert bench.stage.tick_due_ms == END_MS + 405
    bench.apply(Record(1, END_MS + 8, ((0, START_MS, 1.0),)))
    assert bench.stage.tick_due_ms == END_MS + 10
    bench.apply(Record(2, END_MS + 10))
    assert bench.stage.tick_due_ms == END_MS + 405


def test_a_part_of_a_late_minute_is_not_emitted() -> None:
    bench = Bench()
    bench.apply(live(0, END_MS + 7), Record(1, END_MS + 8, ((0, START_MS, 1.0),)))
    bench.emit()
    assert bench.samples(Kind.LATE) == set()
    assert bench.stage.progress.position == 0
    bench.apply(Record(2, END_MS + 10))
    (key,) = (key for key in bench.emit() if isinstance(key, ChunkKey) and key.kind is Kind.LATE)
    assert (key.order, bench.stage.progress.position) == (0, 2)


def test_slices_that_do_not_divide_the_window_are_refused() -> None:
    with pytest.raises(ConfigMismatch, match="do not divide"):
        ChunkStage(0, Progress(0, 0), 0, times=TIMES, slices=SliceLengths(30, 60))


def test_a_record_of_exemplars_closes_windows_as_a_tick_does_and_is_in_no_chunk() -> None:
    bench, other = Bench(), Bench()
    for one in (bench, other):
        one.apply(live(0, START_MS))
    records = records_of([[(id_of(0), START_MS, 1.0, {"trace_id": "a"}), (12345, START_MS, 1.0, {})]])
    bench.stage.apply(records, np.array([1], np.int64), np.array([END_MS + 405], np.int64))
    other.apply(Record(1, END_MS + 405))
    assert bench.emit() == other.emit()
    assert bench.written == other.written
    assert bench.samples(Kind.BASE) == {(id_of(0), START_MS)}
