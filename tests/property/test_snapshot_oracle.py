"""A head that goes on from its snapshot equals one that never stopped: every read, every later seal, fold and drop."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data.heads import DAY_MS, Record, apply, new_head, register
from support.data.snapshots import read_head, write_head
from support.examples import examples
from tsdb.answer.answer import RawResult
from tsdb.head.head import Head
from tsdb.head.state import HeadLimits
from tsdb.model.errors import OutOfCoverage
from tsdb.model.time_set import SliceLengths

START_MS = 50_000
SERIES_MAX = 30
HOLD_MS = 300

values = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), 1e300, 0.1, 7.0])
lateness = st.one_of(st.integers(-15, 12), st.integers(-300, 20), st.sampled_from([-5_000, -2 * DAY_MS]))
sample = st.tuples(st.integers(0, SERIES_MAX - 1), lateness, values)


@dataclass(frozen=True)
class Append:
    """Records as one batch: (advance of broker time, gap in offsets, samples, import tick)."""

    records: tuple[tuple[int, int, tuple[tuple[int, int, float], ...], bool], ...]


@dataclass(frozen=True)
class Announce:
    """Series announced now; a later one is forgotten unless it has samples."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Maintain:
    """Rounds of maintenance: refs of forgotten series are free after many."""

    rounds: int


@dataclass(frozen=True)
class Restart:
    """A snapshot, and a new head that goes on from it."""


record_parts = st.tuples(
    st.one_of(st.integers(0, 9), st.integers(-4, 80), st.sampled_from([500, 2 * DAY_MS])),
    st.integers(0, 2),
    st.lists(sample, max_size=8).map(tuple),
    st.integers(0, 30).map(lambda number: number == 0),
)
operations = st.lists(
    st.one_of(
        st.lists(record_parts, min_size=1, max_size=10).map(lambda parts: Append(tuple(parts))),
        st.lists(st.integers(0, SERIES_MAX - 1), min_size=1, max_size=8).map(lambda found: Announce(tuple(found))),
        st.sampled_from([1, 1, 1, 2, 401]).map(Maintain),
        st.just(Restart()),
    ),
    min_size=2,
    max_size=25,
)
slice_lengths = st.sampled_from([SliceLengths(10, 40), SliceLengths(5, 5), SliceLengths(25, 100)])
head_limits = st.builds(
    HeadLimits,
    memory_soft_bytes=st.sampled_from([1 << 40, 1 << 40, 0]),
    fold_entries_min=st.sampled_from([1, 3]),
    fold_step=st.sampled_from([0, 65_536]),
    ring_samples_max=st.sampled_from([4, 40, 65_536]),
    holes_max=st.sampled_from([2, 256]),
)


@pytest.mark.slow
@given(operations, slice_lengths, head_limits, st.sampled_from([None, 0, 60]))
@settings(max_examples=examples(60))
def test_a_head_from_its_snapshot_equals_one_that_never_stopped(
    done: list[Append | Announce | Maintain | Restart],
    slices: SliceLengths,
    limits: HeadLimits,
    coverage_after: int | None,
) -> None:
    def fresh() -> Head:
        coverage_ms = -(1 << 40) if coverage_after is None else START_MS + coverage_after
        first = coverage_after is None
        return new_head(
            slices=slices,
            hold_ms=HOLD_MS,
            limits=limits,
            since_offset=5,
            from_start=first,
            coverage_start_ms=coverage_ms,
        )

    steady, moved = fresh(), fresh()
    broker_ms, offset = START_MS, 5
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot"
        for operation in [*done, Restart(), Maintain(1)]:
            if isinstance(operation, Append):
                records = []
                for forward, gap, parts, tick in operation.records:
                    broker_ms, offset = broker_ms + forward, offset + gap
                    stamped = tuple((number, broker_ms + late, value) for number, late, value in parts)
                    records.append(Record(offset, broker_ms, () if tick else stamped, tick))
                    offset += 1
                assert apply(steady, records) == apply(moved, records)
            elif isinstance(operation, Announce):
                for head in (steady, moved):
                    register(head, operation.numbers, broker_ms)
            elif isinstance(operation, Maintain):
                for _ in range(operation.rounds):
                    assert steady.maintain() == moved.maintain()
            elif moved.applied_offset is not None:
                write_head(moved, path)
                moved = read_head(path, slices=slices, hold_ms=HOLD_MS, limits=limits)
            check_equal(steady, moved, broker_ms)


def check_equal(steady: Head, moved: Head, now_ms: int) -> None:
    assert steady.state() == moved.state()
    assert steady.progress == moved.progress
    counts = [
        (size.series, size.samples, size.late, size.slices, size.sealed_samples, size.sealed_bytes)
        for size in (steady.sizes(), moved.sizes())
    ]
    assert counts[0] == counts[1]
    assert answers(steady, now_ms) == answers(moved, now_ms)


def answers(head: Head, now_ms: int) -> list[object]:
    """All that reads of a head give, as bytes."""
    refs = head.index.all_refs()
    ids = head.index.series_ids_of(refs)
    joined, lengths = head.index.labels_of(refs)
    found: list[object] = [ids.tobytes(), joined, lengths.tobytes(), head.index.label_names()]
    for back, length in ((4 * DAY_MS, 8 * DAY_MS), (60, 50)):
        start_ms, end_ms = now_ms - back, now_ms - back + length
        found += raw_bytes(head.gather_raw(refs, start_ms, end_ms))
        found += raw_bytes(head.gather_raw(refs, start_ms, end_ms, partial=True))
        found += raw_bytes(head.gather_raw(refs, start_ms, end_ms, last_n=2))
        found += [array.tobytes() for array in head.seen(refs, start_ms, end_ms)]
        columns = head.gather_columns(refs, start_ms, end_ms)
        found += [columns.columns.data.tobytes(), columns.columns.axes.tobytes(), *raw_bytes(columns.overlay)]
    return found + [watched(head, since) for since in range(4, head.state().next_offset)]


def watched(head: Head, since: int) -> object:
    """Samples after an offset as bytes; the offset that is held when that is too early."""
    try:
        batches = head.watch_since(since)
    except OutOfCoverage as error:
        return error.metadata["held_after_offset"]
    return [
        b"".join(getattr(batch, name).tobytes() for batch in batches) for name in ("refs", "offsets", "ts_ms", "values")
    ]


def raw_bytes(raw: RawResult) -> list[bytes]:
    orders = b"" if raw.orders is None else raw.orders.tobytes()
    return [raw.counts.tobytes(), raw.ts_ms.tobytes(), raw.values.tobytes(), orders]
