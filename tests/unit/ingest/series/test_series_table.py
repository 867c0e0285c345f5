"""The series table against a dictionary: it never claims an announcement that was not made, grows without losing a
series, and a working set larger than the table costs its share of misses."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from ingest.rows import ResolvedSeries, unresolved
from ingest.series.table import PAGE_BYTES, SeriesTable
from ingest.series.table_kernels import ADMITTED_SHARE, PAGE_ROWS_MAX, ROOTS

WINDOW_MS = 4 * 3_600_000
SMALL_BYTES = 1  # As few pages as possible and one bucket.
SMALL_ROWS = ROOTS * PAGE_ROWS_MAX
EPOCH = 660


def series(numbers: NDArray[np.int64] | range) -> ResolvedSeries:
    """Series with all fields made from their numbers."""
    number = np.array(numbers, np.uint64) + np.uint64(1)
    made = unresolved(number * np.uint64(0x9E3779B97F4A7C15), number * np.uint64(0xC2B2AE3D27D4EB4F))
    made.pack_id[:] = number * np.uint64(7)
    made.partition[:] = number.astype(np.int64) % 500
    return made


def know(table: SeriesTable, numbers: NDArray[np.int64] | range, until_ms: int = WINDOW_MS, now_ms: int = 1) -> None:
    count = len(numbers)
    table.set_known(series(numbers), np.full(count, EPOCH), until_ms, now_ms)


def look_up(table: SeriesTable, numbers: NDArray[np.int64] | range, now_ms: int = 1) -> tuple[ResolvedSeries, int]:
    """(the series as the table has them, look-ups that found a row)"""
    blank = series(numbers)
    blank.pack_id[:], blank.partition[:] = 0, -1
    found = table.find(blank)
    missed = np.flatnonzero(~found)
    rest = series(numbers).part(missed)
    assert not table.recall(rest, now_ms).any()
    for field in ("pack_id", "partition", "known"):
        getattr(blank, field)[missed] = getattr(rest, field)
    return blank, int(found.sum())


def check_fields(got: ResolvedSeries, numbers: NDArray[np.int64] | range) -> None:
    expected = series(numbers)
    assert (got.pack_id == expected.pack_id).all()
    assert (got.partition == expected.partition).all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("bytes_max", "count"), [(SMALL_BYTES, 1500), (64 << 10, 1500), (1 << 20, 5000)])
def test_a_known_announcement_is_one_that_was_made(seed: int, bytes_max: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    # The series ids are multiples of one number, which 1 in 1,300 secrets of the table crowds into few pages.
    table, now_ms = SeriesTable(bytes_max, WINDOW_MS, entropy=random.Random(seed).randbytes), 1
    model: dict[tuple[int, int], int] = {}
    fits = count <= 1 << 20 and bytes_max >= 1 << 20
    for _ in range(60):
        now_ms += int(rng.choice([0, 1000, WINDOW_MS // 8]))
        numbers = np.unique(rng.integers(0, count, rng.integers(1, 400)))
        got, _ = look_up(table, numbers, now_ms)
        check_fields(got, numbers)
        epochs = EPOCH + rng.integers(0, 2, len(numbers))
        for index, number in enumerate(numbers.tolist()):
            for epoch, until_ms, renew_ms in got.known[index].tolist():
                told = model.get((number, epoch), 0)
                if until_ms > now_ms:
                    assert until_ms <= told
                    assert until_ms - WINDOW_MS // 2 <= renew_ms < until_ms
            if fits:
                held = {int(epoch): int(until) for epoch, until, _ in got.known[index] if until}
                assert held == {e: model[number, e] for e in (EPOCH, EPOCH + 1) if (number, e) in model}
        late_ms = int(rng.choice([0, 0, 500]))  # An answer that comes after a newer one.
        table.set_known(series(numbers), epochs, now_ms + WINDOW_MS - late_ms, now_ms)
        for number, epoch in zip(numbers.tolist(), epochs.tolist(), strict=True):
            model[number, epoch] = max(model.get((number, epoch), 0), now_ms + WINDOW_MS - late_ms)
    assert len(table) <= max(SMALL_ROWS, 2 * bytes_max // 3 // PAGE_BYTES * PAGE_ROWS_MAX)


def test_an_older_answer_never_shortens_a_newer_one_and_another_epoch_of_its_parity_replaces_it() -> None:
    table, one = SeriesTable(SMALL_BYTES, WINDOW_MS), series(range(1))
    for epoch, until_ms in ((EPOCH, 20_000), (EPOCH, 10_000), (EPOCH + 1, 5_000)):
        table.set_known(one, np.array([epoch]), until_ms, 1)
    assert look_up(table, range(1))[0].known[0, :, :2].tolist() == [[EPOCH, 20_000], [EPOCH + 1, 5_000]]
    table.set_known(one, np.array([EPOCH + 2]), 7_000, 1)
    assert look_up(table, range(1))[0].known[0, 0, :2].tolist() == [EPOCH + 2, 7_000]


def test_epochs_before_zero_are_kept() -> None:
    table = SeriesTable(SMALL_BYTES, WINDOW_MS)
    table.set_known(series(range(1)), np.array([-3]), 9_000, 1)
    assert look_up(table, range(1))[0].known[0, 1, :2].tolist() == [-3, 9_000]


def test_a_postponed_renewal_is_due_later_and_one_of_a_series_without_a_row_changes_nothing() -> None:
    table = SeriesTable(SMALL_BYTES, WINDOW_MS)
    know(table, range(2))
    table.postpone_renewal(series(range(1, 3)), WINDOW_MS - 1000)
    known = look_up(table, range(3))[0].known
    assert known[0, 0, 2] < WINDOW_MS
    assert WINDOW_MS - 1000 <= known[1, 0, 2] < WINDOW_MS
    assert not known[2].any()


def test_growing_loses_no_series_and_takes_less_than_110_bytes_each() -> None:
    table = SeriesTable(64 << 20, WINDOW_MS)
    for first in range(0, 100_000, 5_000):
        know(table, range(first, first + 5_000))
        assert len(table) == first + 5_000
        got, hits = look_up(table, range(0, first + 5_000, 7))
        assert hits == len(got.pack_id)
    check_fields(got, range(0, 100_000, 7))
    assert table.nbytes < 110 * 100_000


def test_a_full_table_prefers_series_whose_announcement_is_over() -> None:
    # The bytes are seeded. With random bytes one table of 25 keeps 90 or fewer.
    table = SeriesTable(SMALL_BYTES, WINDOW_MS, entropy=random.Random(0).randbytes)
    know(table, range(1000), until_ms=WINDOW_MS)
    rows = len(table)
    know(table, range(1000, 1100), until_ms=3 * WINDOW_MS, now_ms=2 * WINDOW_MS)
    assert len(table) == rows
    # Only eight rows are examined, and now and then all eight are new ones.
    assert look_up(table, range(1000, 1100), 2 * WINDOW_MS)[1] > 90


@pytest.mark.parametrize("order", ["cycle", "random"])
def test_a_working_set_twice_the_table_misses_about_half_and_needs_no_announcement(order: str) -> None:
    table = SeriesTable(1 << 20, WINDOW_MS, entropy=random.Random(0).randbytes)
    rows = 2 * (1 << 20) // 3 // PAGE_BYTES * PAGE_ROWS_MAX
    numbers = np.random.default_rng(3).permutation(2 * rows)
    know(table, numbers)
    hits = looks = announced = 0
    for seed in range(4):
        if order == "random":
            numbers = np.random.default_rng(seed).permutation(numbers)
        for first in range(0, len(numbers), 1000):
            part = numbers[first : first + 1000]
            got, some = look_up(table, part)
            unknown = part[~got.known[:, :, 1].any(axis=1)]
            know(table, unknown)
            hits, looks, announced = hits + some, looks + len(part), announced + len(unknown)
    assert 0.38 < hits / looks < 0.6
    assert announced < 0.005 * looks, "a miss is no announcement by itself"


def test_a_scan_does_not_displace_what_is_used() -> None:
    table = SeriesTable(256 << 10, WINDOW_MS)
    know(table, range(10_000))
    rows = len(table)
    hot = np.random.default_rng(5).permutation(10_000)
    hot = hot[np.flatnonzero(table.find(series(hot)))][: rows // 2]
    for scan in range(20):
        know(table, range(20_000 + scan * 200, 20_200 + scan * 200))
        look_up(table, hot)
    scanned = 20 * 200
    assert scanned > rows // 2
    assert look_up(table, hot)[1] > (1 - 1 / ADMITTED_SHARE) * len(hot)


def test_threads_over_a_small_table_get_their_own_rows() -> None:
    table = SeriesTable(SMALL_BYTES, WINDOW_MS)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(150):
                first = rng.randrange(2_000)
                know(table, range(first, first + 40))
                check_fields(look_up(table, range(first, first + 40))[0], range(first, first + 40))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert errors == []
    assert len(table) <= SMALL_ROWS
