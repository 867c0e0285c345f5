"""Details stay with their samples in a head, whatever is appended, sealed, folded, dropped and restored in between.

The oracle keeps the last details of each (series, time). Other tests have an oracle of the samples.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.data.heads import DAY_MS, Record, apply, details_of, new_head, refs_of
from support.data.snapshots import read_head, write_head
from support.examples import examples
from tsdb.answer.answer import RawResult, overlaid_details, raw_of
from tsdb.answer.columns import PartitionColumns, decode_partitions
from tsdb.head.head import Head
from tsdb.head.state import HeadLimits
from tsdb.model.details import SampleDetails, same_details
from tsdb.model.time_set import SliceLengths

SERIES = range(4)
START_MS = 10_000

lateness = st.one_of(st.integers(-12, 3), st.integers(-40, 0), st.sampled_from([-400, -5_000, -2 * DAY_MS]))
numbers = st.one_of(st.just(0), st.integers(0, 9))
samples = st.lists(st.tuples(st.sampled_from(SERIES), lateness, numbers), max_size=8)
record_parts = st.tuples(
    st.one_of(st.integers(0, 8), st.integers(0, 60), st.sampled_from([500, 2 * DAY_MS])), samples.map(tuple)
)


@dataclass(frozen=True)
class Append:
    """Records as one batch: (advance of broker time, samples as series, lateness and number of details)."""

    records: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...]


@dataclass(frozen=True)
class Maintain:
    """A round of maintenance."""


@dataclass(frozen=True)
class Restart:
    """A snapshot, and a new head that goes on from it."""


@dataclass(frozen=True)
class Read:
    """A read of [newest - back, newest - back + length)."""

    back: int
    length: int


operations = st.lists(
    st.one_of(
        st.lists(record_parts, min_size=1, max_size=8).map(lambda parts: Append(tuple(parts))),
        st.just(Maintain()),
        st.just(Restart()),
        st.builds(
            Read,
            st.one_of(st.integers(-20, 500), st.just(3 * DAY_MS)),
            st.one_of(st.integers(0, 300), st.just(4 * DAY_MS)),
        ),
    ),
    min_size=1,
    max_size=20,
)
slice_lengths = st.sampled_from([SliceLengths(10, 40), SliceLengths(5, 5), SliceLengths(25, 100)])
limits = st.builds(
    HeadLimits,
    memory_soft_bytes=st.sampled_from([1 << 40, 1 << 40, 0]),
    fold_entries_min=st.sampled_from([1, 3]),
    fold_step=st.sampled_from([0, 65_536]),
)

Oracle = dict[tuple[int, int], tuple[int, float]]
"""{(series, ts_ms): (number of the details, value)} of the record applied last."""


class Log:
    """Numbers the records of operations, and tells the oracle of them."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.broker_ms = START_MS
        self.oracle: Oracle = {}

    def records(self, append: Append) -> Iterator[Record]:
        for forward, parts in append.records:
            self.broker_ms += forward
            stamped, kinds = [], []
            for series, late, number in parts:
                ts_ms = self.broker_ms + min(late, 3)
                value = float(self.next_offset * 10 + number)
                stamped.append((series, ts_ms, value))
                kinds.append(number)
                self.oracle[series, ts_ms] = number, value
            yield Record(self.next_offset, self.broker_ms, tuple(stamped), details=tuple(kinds) if any(kinds) else ())
            self.next_offset += 1


@pytest.mark.slow
@given(operations, slice_lengths, limits)
@settings(max_examples=examples(150))
def test_any_appends_seals_drops_and_restarts_answer_as_the_oracle(
    done: list[Append | Maintain | Restart | Read], slices: SliceLengths, head_limits: HeadLimits
) -> None:
    log = Log()
    head = new_head(slices=slices, limits=head_limits, series=len(SERIES))
    with tempfile.TemporaryDirectory() as folder:
        for operation in done:
            match operation:
                case Append():
                    apply(head, list(log.records(operation)))
                case Maintain():
                    head.maintain()
                case Restart():
                    write_head(head, Path(folder) / "snapshot")
                    head = read_head(Path(folder) / "snapshot", slices=slices, limits=head_limits)
                case Read():
                    check(head, log, log.broker_ms - operation.back, operation.length)
    head.maintain()
    check(head, log, log.broker_ms - 4 * DAY_MS, 8 * DAY_MS)


def check(head: Head, log: Log, start_ms: int, length: int) -> None:
    """RAW, last-N and COLUMNS reads of one range, and a partial one."""
    refs, end_ms = refs_of(head, SERIES), start_ms + length
    partial = head.gather_raw(refs, start_ms, end_ms, partial=True)
    check_partial(head, log, partial)
    if not head.state().from_start:
        start_ms = max(start_ms, head.state().coverage_start_ms)
        end_ms = max(start_ms, end_ms)
    raw = head.gather_raw(refs, start_ms, end_ms)
    keys = keys_of(raw)
    assert keys == sorted(key for key in log.oracle if start_ms <= key[1] < end_ms)
    assert same_details(raw.details, wanted(log, keys))
    last = head.gather_raw(refs, start_ms, end_ms, last_n=2)
    assert same_details(last.details, wanted(log, keys_of(last)))
    columns = head.gather_columns(refs, start_ms, end_ms)
    columns.columns.freeze()
    part = PartitionColumns(len(SERIES), [columns.columns], [columns.overlay])
    found = RawResult(*decode_partitions([part], start_ms, end_ms))
    assert keys_of(found) == keys
    assert same_details(overlaid_details(found, raw_of([columns.overlay], len(SERIES))), wanted(log, keys))


def check_partial(head: Head, log: Log, partial: RawResult) -> None:
    """At and above coverage all details are there, and below it those of records from since_offset on."""
    assert partial.orders is not None
    state = head.state()
    keys = keys_of(partial)
    newest = np.array([log.oracle[key][1] == value for key, value in zip(keys, partial.values, strict=True)], np.bool_)
    held = state.from_start | (partial.ts_ms >= state.coverage_start_ms) | (partial.orders >= state.since_offset)
    rows = np.flatnonzero(newest & held)
    got = partial.details and partial.details.take(rows)
    assert same_details(got, wanted(log, [keys[row] for row in rows.tolist()]))


def keys_of(raw: RawResult) -> list[tuple[int, int]]:
    series: NDArray[np.int64] = np.repeat(np.arange(len(raw.counts)), raw.counts)
    return list(zip(series.tolist(), raw.ts_ms.tolist(), strict=True))


def wanted(log: Log, keys: list[tuple[int, int]]) -> SampleDetails | None:
    found = [log.oracle[key] for key in keys]
    return details_of([number for number, _ in found], np.array([value for _, value in found], np.float64))
