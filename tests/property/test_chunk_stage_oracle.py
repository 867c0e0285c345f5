"""The output of the chunk stage follows from the log alone, with any batching and any stops."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data.announcements import joined
from support.data.heads import (
    DAY_MS,
    SMALL_SLICES,
    SMALL_TIMES,
    Record,
    Sample,
    announcement,
    decoded_of,
    positions_of,
)
from support.examples import examples
from support.oracles.chunk_twin import ChunkTwin
from support.servers.chunk_runs import ChunkRun
from tsdb.chunks.late_scan import ALL_WINDOWS, LateScan, Windows
from tsdb.chunks.rebuild import ALL_PACKS, OPEN_BYTES_MAX, PackRange, WindowRebuild
from tsdb.chunks.records import ChunkRecord
from tsdb.codec.chunk.chunk import PART_BYTES_MAX, PART_BYTES_MIN
from tsdb.codec.chunk.key import ChunkKey, Kind, decode_key
from tsdb.codec.chunk.marker import decode_window_marker
from tsdb.model.time_set import SliceLengths
from tsdb.model.window import window_end

SERIES = range(6)
START_MS = 10_000
STALE_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]


@dataclass(frozen=True)
class Edge:
    """Milliseconds before the end of a window; negative behind it."""

    before_ms: int


values = st.sampled_from([0.0, -0.0, 1.0, 2.5, 1e300, 5e-324, float("inf"), float("nan"), STALE_NAN, 0.1])
# Distances from a record's time: live, out of order, ahead of the limit, in the window before, long ago.
lateness = st.one_of(
    st.integers(-12, 3),
    st.integers(-30, 20),
    st.integers(-900, 0),
    st.integers(5, 15),
    st.sampled_from([-5_000, -2 * DAY_MS, -20_000]),
)
samples = st.lists(st.tuples(st.sampled_from(SERIES), lateness, values), max_size=6)
# A step of broker time: forward by some ms, or to some ms before the end of a window.
advance = st.one_of(
    st.integers(0, 8),
    st.integers(0, 60),
    st.sampled_from([-6, -30, 0, 150, 900, 5_000]),
    st.integers(-20, 15).map(Edge),
)
# Numbers of the details of a record's samples; most records have none.
details = st.one_of(st.just(()), st.just(()), st.tuples(*[st.integers(0, 11)] * 6))
parts = st.tuples(advance, st.integers(0, 2), samples, st.integers(0, 30).map(lambda n: n == 0), details)


def log_of(made: list[tuple[int | Edge, int, list[Sample], bool, tuple[int, ...]]]) -> list[Record]:
    """Records with rising offsets, broker times that may step back, and samples stamped from them."""
    records: list[Record] = []
    offset, broker_ms = 0, START_MS
    for forward, gap, drawn, tick, numbers in made:
        if isinstance(forward, Edge):
            broker_ms = window_end(broker_ms + forward.before_ms, SMALL_TIMES.window_ms) - forward.before_ms
        else:
            broker_ms += forward
        stamped = tuple((number, broker_ms + late, value) for number, late, value in drawn)
        found = () if tick else numbers[: len(stamped)]
        records.append(Record(offset, broker_ms, () if tick else stamped, tick, found))
        offset += 1 + gap
    return records


logs = st.lists(parts, min_size=1, max_size=60).map(log_of)
slice_lengths = st.sampled_from([SMALL_SLICES, SliceLengths(5, 5), SliceLengths(25, 100), SliceLengths(400, 400)])


@pytest.mark.slow
@given(logs, slice_lengths, st.lists(st.integers(0, 60), max_size=6), st.integers(0, 1 << 30))
@settings(max_examples=examples(300))
def test_any_batching_and_any_stops_write_the_same_chunks(
    records: list[Record], slices: SliceLengths, stops: list[int], seed: int
) -> None:
    part_bytes_max = PART_BYTES_MAX if seed % 2 else PART_BYTES_MIN
    run = ChunkRun(records, random.Random(seed), slices=slices, part_bytes_max=part_bytes_max)
    assert run.run(stops) == ChunkTwin(records, SMALL_TIMES, part_bytes_max).written()


@pytest.mark.parametrize("stop", range(24))
def test_a_sample_ahead_of_its_window_outlives_a_stop_at_any_action(stop: int) -> None:
    """The sample is written before its window begins, so it lies in the log before all other records to read again."""
    start_ms = START_MS - START_MS % SMALL_TIMES.window_ms
    records = [
        Record(0, start_ms + 100, ((0, start_ms + 100, 1.0),)),
        Record(1, start_ms + 387, ((1, start_ms + 400, 2.0), (0, start_ms + 387, 3.0))),
        Record(2, start_ms + 405),
        Record(3, start_ms + 700, ((0, start_ms + 300, 4.0),)),
        # After a step back of the broker's clock such a sample is late by the watermark, and too far ahead of its
        # record for any reader.
        Record(4, start_ms + 350, ((0, start_ms + 370, 5.0), (1, start_ms + 365, 6.0))),
        Record(5, start_ms + 810),
    ]
    assert ChunkRun(records, random.Random(stop)).run([stop]) == ChunkTwin(records, SMALL_TIMES).written()


@pytest.mark.parametrize("stop", range(12))
def test_a_window_that_closes_in_the_middle_of_a_late_minute_outlives_a_stop_at_any_action(stop: int) -> None:
    """The window's last sample lies in the minute, before the close. Read again from the minute's first offset it is
    not late."""
    end_ms = window_end(START_MS, SMALL_TIMES.window_ms)
    assert SMALL_TIMES.grace_ms % SMALL_TIMES.late_minute_ms
    records = [
        Record(0, end_ms - 300, ((0, end_ms - 300, 1.0),)),
        Record(1, end_ms + 2, ((0, end_ms - 10, 2.0),)),
        Record(2, end_ms + 6, ((1, end_ms + 5, 3.0),)),
        Record(3, end_ms + 8, ((0, end_ms - 20, 4.0),)),
        Record(4, end_ms + 30),
        Record(5, end_ms + 50),
    ]
    want = ChunkTwin(records, SMALL_TIMES).written()
    for seed in range(40):  # Batches, and the times of writing due output.
        assert ChunkRun(records, random.Random(seed)).run([stop]) == want, f"seed {seed}"


@given(logs, st.integers(0, 1 << 30), st.sampled_from([0, OPEN_BYTES_MAX]))
@settings(max_examples=examples(50))
def test_a_rebuild_of_any_window_writes_the_chunks_of_the_stage(
    records: list[Record], seed: int, open_bytes_max: int
) -> None:
    twin, written = ChunkTwin(records, SMALL_TIMES), ChunkRun(records, random.Random(seed)).run()
    rebuilt: set[tuple[bytes, bytes]] = set()
    for window_ms in twin.closed_windows():
        rebuilt |= rebuild(records, window_ms, twin, open_bytes_max)
    assert rebuilt == {pair for pair in written if not is_late(pair[0])}


@given(logs, st.integers(0, 1 << 30), st.integers(1, 9))
@settings(max_examples=examples(100))
def test_ranges_of_packs_give_the_window_in_its_order(records: list[Record], seed: int, parts: int) -> None:
    twin = ChunkTwin(records, SMALL_TIMES)
    for window_ms in twin.closed_windows():
        whole = list(rebuilt_records(records, window_ms, twin))
        in_parts = [list(rebuilt_records(records, window_ms, twin, packs=packs)) for packs in ALL_PACKS.split(parts)]
        assert [record for part in in_parts for record in part[:-1]] == whole[:-1], "the marker is the last record"
        markers = [decode_window_marker(part[-1].value) for part in in_parts]
        marker = decode_window_marker(whole[-1].value)
        assert (sum(one.packs for one in markers), sum(one.samples for one in markers)) == (
            marker.packs,
            marker.samples,
        )
        full = WindowRebuild(0, window_ms, times=SMALL_TIMES, sample_bytes_max=seed % 5_000)
        fed(full, records, window_ms, twin)
        if full.full_at is None:
            decision = twin.decision_offset(window_ms)
            assert decision is not None
            assert list(full.records(decision)) == whole


def rebuild(records: list[Record], window_ms: int, twin: ChunkTwin, open_bytes_max: int) -> set[tuple[bytes, bytes]]:
    """One window from the records of [lookup of (its start - ahead), D)."""
    made = rebuilt_records(records, window_ms, twin, open_bytes_max)
    return {(record.key, record.value) for record in made}


def rebuilt_records(
    records: list[Record],
    window_ms: int,
    twin: ChunkTwin,
    open_bytes_max: int = OPEN_BYTES_MAX,
    packs: PackRange = ALL_PACKS,
) -> Iterator[ChunkRecord]:
    decision = twin.decision_offset(window_ms)
    assert decision is not None
    made = WindowRebuild(0, window_ms, times=SMALL_TIMES, open_bytes_max=open_bytes_max, packs=packs)
    fed(made, records, window_ms, twin)
    return made.records(decision)


def fed(made: WindowRebuild, records: list[Record], window_ms: int, twin: ChunkTwin) -> None:
    """Pass the window's announcements and records."""
    decision = twin.decision_offset(window_ms)
    assert decision is not None
    start = next(r.offset for r in records if r.broker_ms >= window_ms - SMALL_TIMES.ahead_ms)
    made.register(*joined([announcement(number) for number in SERIES], broker_ms=1 << 60))
    stretch = [record for record in records if start <= record.offset < decision]
    if stretch:
        made.apply(decoded_of(stretch), *positions_of(stretch))


@given(logs, st.lists(st.integers(0, 1 << 30), max_size=4), st.integers(0, 1 << 30))
@settings(max_examples=examples(150))
def test_stretches_between_any_late_minutes_give_the_late_chunks_of_the_stage(
    records: list[Record], cuts: list[int], seed: int
) -> None:
    written = ChunkRun(records, random.Random(seed)).run()
    starts = minute_starts(records)
    ends = sorted({starts[0], starts[-1], *(starts[cut % len(starts)] for cut in cuts)})
    scanned: set[tuple[bytes, bytes]] = set()
    for first, end in pairwise(ends):
        scanned |= scan([record for record in records if first <= record.offset < end], first, end, seed)
    assert scanned == {pair for pair in written if is_late(pair[0])}


@given(logs, st.integers(-3, 3), st.integers(0, 1 << 30))
@settings(max_examples=examples(50))
def test_a_scan_for_some_windows_gives_their_late_chunks_alone(records: list[Record], windows: int, seed: int) -> None:
    window_ms = SMALL_TIMES.window_ms
    from_ms = records[0].broker_ms // window_ms * window_ms - window_ms
    wanted = Windows(from_ms, from_ms + windows * window_ms)
    starts = minute_starts(records)
    stretch = [record for record in records if record.offset < starts[-1]]
    got = scan(stretch, starts[0], starts[-1], seed, wanted)
    everything = scan(stretch, starts[0], starts[-1], seed)
    assert got == {pair for pair in everything if wanted.start_ms <= window_of(pair[0]) < wanted.end_ms}


def minute_starts(records: list[Record]) -> list[int]:
    """First offsets of all late minutes."""
    found, watermark_ms, minute = [], -(1 << 62), None
    for record in records:
        watermark_ms = max(watermark_ms, record.broker_ms)
        if watermark_ms // SMALL_TIMES.late_minute_ms != minute:
            minute = watermark_ms // SMALL_TIMES.late_minute_ms
            found.append(record.offset)
    return found


def scan(
    stretch: list[Record], first: int, end: int, seed: int, windows: Windows = ALL_WINDOWS
) -> set[tuple[bytes, bytes]]:
    """Records of one stretch in batches of any size."""
    rng = random.Random(seed)
    made = LateScan(0, first, times=SMALL_TIMES, slices=SMALL_SLICES, windows=windows)
    made.register(*joined([announcement(number) for number in SERIES], broker_ms=1 << 60))
    found: set[tuple[bytes, bytes]] = set()
    while stretch:
        size = rng.choice([1, 3, 40])
        batch, stretch = stretch[:size], stretch[size:]
        decoded = decoded_of(batch)
        made.unknown_ids(decoded)
        made.apply(decoded, *positions_of(batch))
        found |= {(record.key, record.value) for record in made.records()}
    made.end(end)
    return found | {(record.key, record.value) for record in made.records()}


def window_of(key: bytes) -> int:
    decoded = decode_key(key)
    assert isinstance(decoded, ChunkKey)
    return decoded.window_start_ms


def is_late(key: bytes) -> bool:
    decoded = decode_key(key)
    return isinstance(decoded, ChunkKey) and decoded.kind is Kind.LATE
