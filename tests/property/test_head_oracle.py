"""The head agrees with a dict of lists, whatever is appended, sealed, merged, folded and dropped in between."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data.heads import DAY_MS, SMALL_TIMES, Record, apply, bits, new_head, refs_of, samples_of
from support.examples import examples
from support.oracles.head_twin import HeadTwin
from tsdb.answer.answer import RawResult
from tsdb.answer.columns import PartitionColumns, decode_partitions
from tsdb.head.head import Head
from tsdb.head.state import HeadLimits
from tsdb.model.time_set import SliceLengths

SERIES = range(5)
START_MS = 10_000
STALE_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]

values = st.sampled_from([0.0, -0.0, 1.0, 2.5, -7.25, 1e300, 5e-324, float("inf"), float("nan"), STALE_NAN, 3.0, 0.1])
# How far a sample's time is from its record's: live, out of order, ahead of the limit, late, and from long ago.
lateness = st.one_of(
    st.integers(-12, 3), st.integers(-30, 20), st.integers(-400, 0), st.sampled_from([-5_000, -2 * DAY_MS, -100])
)
samples = st.lists(st.tuples(st.sampled_from(SERIES), lateness, values), max_size=8)
advance = st.one_of(st.integers(0, 8), st.integers(0, 60), st.sampled_from([-6, 0, 500, 2 * DAY_MS]))


@dataclass(frozen=True)
class Append:
    """Records as one batch: (advance of broker time, gap in offsets, samples, import tick)."""

    records: tuple[tuple[int, int, tuple[tuple[int, int, float], ...], bool], ...]


@dataclass(frozen=True)
class Maintain:
    """A round of maintenance."""


@dataclass(frozen=True)
class Read:
    """A read of [newest - back, newest - back + length)."""

    back: int
    length: int
    step: int
    aggregation: int
    last_n: int


record_parts = st.tuples(advance, st.integers(0, 2), samples.map(tuple), st.integers(0, 40).map(lambda n: n == 0))
operations = st.lists(
    st.one_of(
        st.lists(record_parts, min_size=1, max_size=12).map(lambda parts: Append(tuple(parts))),
        st.just(Maintain()),
        st.builds(
            Read,
            st.one_of(st.integers(-20, 500), st.just(3 * DAY_MS)),
            st.one_of(st.integers(0, 300), st.just(4 * DAY_MS)),
            st.integers(1, 50),
            st.integers(1, 6),
            st.integers(1, 5),
        ),
    ),
    min_size=1,
    max_size=25,
)
slice_lengths = st.sampled_from([SliceLengths(10, 40), SliceLengths(5, 5), SliceLengths(25, 100), SliceLengths(1, 7)])
limits = st.builds(
    HeadLimits,
    memory_soft_bytes=st.sampled_from([1 << 40, 1 << 40, 1 << 40, 0]),
    fold_entries_min=st.sampled_from([1, 1, 3]),
    fold_step=st.sampled_from([0, 65_536]),
)


class Log:
    """Numbers the records of operations."""

    def __init__(self, start_offset: int) -> None:
        self.next_offset = start_offset
        self.broker_ms = START_MS

    def records(self, append: Append) -> list[Record]:
        made: list[Record] = []
        for forward, gap, parts, tick in append.records:
            self.broker_ms += forward
            stamped = tuple((number, self.broker_ms + late, value) for number, late, value in parts)
            made.append(Record(self.next_offset + gap, self.broker_ms, () if tick else stamped, tick))
            self.next_offset += gap + 1
        return made


@pytest.mark.slow
@given(operations, slice_lengths, limits, st.sampled_from([None, 0, 7, 60]))
@settings(max_examples=examples(300))
def test_any_appends_seals_folds_merges_and_drops_answer_as_the_twin(
    done: list[Append | Maintain | Read], slices: SliceLengths, head_limits: HeadLimits, coverage_after: int | None
) -> None:
    from_start = coverage_after is None
    coverage = -(1 << 40) if coverage_after is None else START_MS + coverage_after
    log, twin = Log(5), HeadTwin(SMALL_TIMES.ahead_ms)
    head = new_head(
        slices=slices,
        limits=head_limits,
        since_offset=5,
        from_start=from_start,
        coverage_start_ms=coverage,
        series=len(SERIES),
    )
    ignored = 0
    for operation in done:
        if isinstance(operation, Append):
            records = log.records(operation)
            ignored += apply(head, records).ignored_ahead
            twin.apply(records)
        elif isinstance(operation, Maintain):
            head.maintain()
        else:
            check_read(head, twin, operation, log.broker_ms)
    assert ignored == twin.ignored
    head.maintain()
    check_read(head, twin, Read(4 * DAY_MS, 8 * DAY_MS, 13, 2, 3), log.broker_ms)


def check_read(head: Head, twin: HeadTwin, read: Read, now_ms: int) -> None:
    """RAW, steps, last-N, COLUMNS and partial reads of one range."""
    state = head.state()
    start, end = now_ms - read.back, now_ms - read.back + read.length
    check_partial(head, twin, start, end)
    if not state.from_start:
        start = max(start, state.coverage_start_ms)
        end = max(start, end)
    refs = refs_of(head, SERIES)
    want = twin.samples(SERIES, start, end)
    raw = head.gather_raw(refs, start, end)
    assert bits(samples_of(raw, SERIES)) == bits(want)
    check_columns(head, want, start, end)
    stepped = head.gather_raw(refs, start, end, step_ms=read.step, aggregation=read.aggregation)
    with np.errstate(all="ignore"):
        want_steps = twin.steps(SERIES, start, end, read.step, read.aggregation)
    assert bits(samples_of(stepped, SERIES)) == bits(want_steps) or same_numbers(stepped, want_steps)
    last = samples_of(head.gather_raw(refs, start, end, last_n=read.last_n), SERIES)
    assert bits(last) == bits({n: dict(list(by_time.items())[-read.last_n :]) for n, by_time in want.items()})
    first_ms, last_ms = head.seen(refs, start, end)
    for number, low, high in zip(SERIES, first_ms.tolist(), last_ms.tolist(), strict=True):
        times = list(want.get(number, {}))
        assert (low, high) == ((times[0], times[-1]) if times else (2**63 - 1, -(2**63)))


def same_numbers(raw: RawResult, want: dict[int, dict[int, float]]) -> bool:
    """Sums of several NaN may give any NaN: which payload survives is the machine's choice."""
    got = samples_of(raw, SERIES)
    return got.keys() == want.keys() and all(
        list(got[n]) == list(want[n]) and np.array_equal(list(got[n].values()), list(want[n].values()), equal_nan=True)
        for n in want
    )


def check_columns(head: Head, want: dict[int, dict[int, float]], start: int, end: int) -> None:
    """COLUMNS, decoded and trimmed as the client does, are the same samples."""
    columns = head.gather_columns(refs_of(head, SERIES), start, end)
    columns.columns.freeze()
    part = PartitionColumns(len(SERIES), [columns.columns], [columns.overlay])
    decoded = RawResult(*decode_partitions([part], start, end))
    assert bits(samples_of(decoded, SERIES)) == bits(want)


def check_partial(head: Head, twin: HeadTwin, start: int, end: int) -> None:
    """Below coverage all samples from since_offset on are there, each with the highest order held for its time."""
    state = head.state()
    raw = head.gather_raw(refs_of(head, SERIES), start, end, partial=True)
    assert raw.orders is not None
    ends = np.cumsum(raw.counts.astype(np.int64))
    for number, low, high in zip(SERIES, ends - raw.counts, ends, strict=True):
        got = {
            int(ts): (int(order), value)
            for ts, order, value in zip(raw.ts_ms[low:high], raw.orders[low:high], raw.values[low:high], strict=True)
        }
        for ts in twin.times(number):
            if not start <= ts < end:
                continue
            order, value = twin.orders(number, ts)[-1]
            if ts >= state.coverage_start_ms:
                check_sample(got.pop(ts), (-1, value))
            elif order >= state.since_offset or state.from_start:
                check_sample(got.pop(ts), (order, value))
            elif ts in got:
                held_order, held = got.pop(ts)
                assert any(held_order == o and same_bits(held, v) for o, v in twin.orders(number, ts)), (
                    f"series {number} at {ts}: no record {held_order} gave {held}"
                )
        assert not got, f"series {number} has samples nobody wrote: {got}"


def check_sample(got: tuple[int, float], want: tuple[int, float]) -> None:
    assert got[0] == want[0]
    assert same_bits(got[1], want[1])


def same_bits(left: float, right: float) -> bool:
    return np.float64(left).tobytes() == np.float64(right).tobytes()
