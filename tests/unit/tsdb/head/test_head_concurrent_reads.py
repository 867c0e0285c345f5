"""Readers beside a writer that appends, seals, folds, merges and drops see whole records, none lost, none twice."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from support.data.heads import Record, apply, new_head, refs_of
from tsdb.answer.answer import RawResult
from tsdb.answer.columns import PartitionColumns, decode_partitions
from tsdb.head.head import Head

RECORDS = 1500
REWRITE_AFTER = 40  # Each record also rewrites the samples of an older one, whose slice is sealed by then.
START_MS = 10_000


def record(number: int) -> Record:
    now_ms = START_MS + number
    live = tuple((series, now_ms, float(number)) for series in (0, 1))
    late = (
        tuple((series, now_ms - REWRITE_AFTER, -float(number)) for series in (0, 1)) if number >= REWRITE_AFTER else ()
    )
    return Record(number, now_ms, live + late)


def expected(last: int, first_ms: int) -> dict[int, float]:
    """The right answer of a reader that sees records up to `last`, from first_ms on."""
    return {
        START_MS + n: -float(n + REWRITE_AFTER) if n + REWRITE_AFTER <= last else float(n)
        for n in range(max(0, first_ms - START_MS), last + 1)
    }


def read_raw(head: Head, start_ms: int) -> RawResult:
    return head.gather_raw(refs_of(head, (0, 1)), start_ms, START_MS + 2 * RECORDS)


def read_columns(head: Head, start_ms: int) -> RawResult:
    end_ms = START_MS + 2 * RECORDS
    columns = head.gather_columns(refs_of(head, (0, 1)), start_ms, end_ms)
    columns.columns.freeze()
    part = PartitionColumns(2, [columns.columns], [columns.overlay])
    return RawResult(*decode_partitions([part], start_ms, end_ms))


def test_every_read_is_the_state_after_one_record() -> None:
    head = new_head(series=2, hold_ms=200)
    apply(head, [record(0)])
    done = threading.Event()
    failures: list[BaseException] = []
    reads = [0, 0]

    def reader(which: int) -> None:
        try:
            while not done.is_set() or reads[which] < 10:
                check_read(head, (read_raw, read_columns)[(which + reads[which]) % 2])
                reads[which] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=reader, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, RECORDS, 3):
            apply(head, [record(n) for n in range(number, number + 3)])
            head.maintain()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[0]
    assert min(reads) >= 10
    assert head.state().coverage_start_ms > START_MS, "the writer dropped slices meanwhile"


def check_read(head: Head, read: Callable[[Head, int], RawResult]) -> None:
    before = head.applied_offset
    first_ms = max(head.state().coverage_start_ms, START_MS)
    raw = read(head, first_ms)
    after, covered_ms = head.applied_offset, head.state().coverage_start_ms
    assert before is not None
    assert after is not None
    if covered_ms > first_ms:
        return  # The requested range was dropped in between: a store would refuse the answer.
    assert raw.counts[0] == raw.counts[1], "a record is seen as a whole"
    count = int(raw.counts[0])
    for part in (slice(0, count), slice(count, None)):
        got = dict(zip(raw.ts_ms[part].tolist(), raw.values[part].tolist(), strict=True))
        last = max(got) - START_MS
        assert before <= last <= after
        assert got == expected(last, first_ms)
    assert np.isfinite(raw.values).all()
