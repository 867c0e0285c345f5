"""Gather: reads the samples of a head into plain arrays.

`collect` copies open and late samples under the head's lock. Everything after it works without the lock, on that copy
and on sealed slices, which never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import RawResult, SealedColumns
from tsdb.head.read.gather_kernels import (
    collect_kernel,
    compact_kernel,
    decode_slices_kernel,
    merge_overlay_kernel,
    sealed_counts_kernel,
    tidy_runs_kernel,
)
from tsdb.head.read.step_kernels import aggregate_kernel
from tsdb.head.slices.rows import Rows
from tsdb.head.slices.sealed_slice import SealedSlices
from tsdb.model.errors import Overloaded

BLOCK_SAMPLES = 4 << 20  # Samples that are decoded at a time. This bounds the memory of a read beside its result.
COLLECT_PER_REF = 48  # First guess of open samples per series. A guess that is too low costs a second walk.
SAMPLE_BYTES, ORDER_BYTES = 16, 8
NO_ORDERS = np.empty(0, np.int64)

Admit = Callable[[int], None]
"""Called with the most bytes that a gather is about to need; raises when they are not available."""


def admit_all(size: int) -> None:
    """Admit without a memory bound."""


@dataclass(slots=True)
class Runs:
    """Samples of n series, series i in [starts[i], ends[i]) of the arrays. There may be gaps between series.

    orders: record offset of each late sample, NOT_LATE (-1) for the others; empty when not requested.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Samples of each series."""
        return self.ends - self.starts

    def tidy(self) -> Runs:
        """Sort each run by time; of equal timestamps the last one stays. Works in place and returns itself."""
        tidy_runs_kernel(self.starts, self.ends, self.ts_ms, self.values, self.orders)
        return self

    def part(self, first: int, last: int) -> Runs:
        """The series [first, last); arrays are shared."""
        return Runs(self.starts[first:last], self.ends[first:last], self.ts_ms, self.values, self.orders)


@dataclass(slots=True)
class ColumnsResult:
    """Sealed samples as columns. `overlay` holds the other samples of the range and wins at equal timestamps."""

    columns: SealedColumns
    overlay: RawResult

    @property
    def samples(self) -> int:
        """Samples of columns and overlay, before trimming to the range."""
        return self.columns.samples + self.overlay.samples

    @property
    def payload_bytes(self) -> int:
        """Bytes of the arrays."""
        return self.columns.payload_bytes + self.overlay.payload_bytes


def empty_raw(series: int) -> RawResult:
    """A result of `series` series without samples."""
    return RawResult(np.zeros(series, np.uint32), np.empty(0, np.int64), np.empty(0, np.float64))


def collect(
    refs: NDArray[np.uint32],
    start_ms: int,
    end_ms: int,
    open_rows: Rows,
    late_row: NDArray[np.int64],
    *,
    with_orders: bool,
) -> Runs:
    """Copy the open and late samples of [start_ms, end_ms), in the order applied: not tidy. Needs the head's lock."""
    capacity = len(refs) * COLLECT_PER_REF
    starts = np.empty(len(refs) + 1, np.int64)
    while True:
        ts, values = np.empty(capacity, np.int64), np.empty(capacity, np.float64)
        orders = np.empty(capacity, np.int64) if with_orders else NO_ORDERS
        total = collect_kernel(refs, start_ms, end_ms, open_rows, len(open_rows), late_row, starts, ts, values, orders)
        if total <= capacity:
            return Runs(starts[:-1], starts[1:].copy(), ts, values, orders)
        capacity = total


def merge_overlay(
    held: SealedSlices, refs: NDArray[np.uint32], start_ms: int, end_ms: int, overlay: Runs, *, with_orders: bool
) -> Runs:
    """Samples of [start_ms, end_ms) in sealed slices with a tidy overlay merged in, tidy. No lock needed."""
    capacity = overlay.counts
    sealed_counts_kernel(held.below, refs, start_ms, end_ms, False, capacity)
    sealed_counts_kernel(held.sealed, refs, start_ms, end_ms, False, capacity)
    return _join_into(held, refs, start_ms, end_ms, overlay, capacity, with_orders)


def _join_into(
    held: SealedSlices,
    refs: NDArray[np.uint32],
    start_ms: int,
    end_ms: int,
    overlay: Runs,
    capacity: NDArray[np.int64],
    with_orders: bool,
) -> Runs:
    total = int(capacity.sum())
    starts = np.cumsum(capacity) - capacity
    runs = Runs(
        starts,
        starts.copy(),
        np.empty(total, np.int64),
        np.empty(total, np.float64),
        np.empty(total, np.int64) if with_orders else NO_ORDERS,
    )
    if len(held.below):
        _decode(held.below, refs, start_ms, end_ms, runs)
        runs.tidy()
    _decode(held.sealed, refs, start_ms, end_ms, runs)
    merge_overlay_kernel(
        runs.starts,
        runs.ends,
        runs.ts_ms,
        runs.values,
        runs.orders,
        overlay.starts,
        overlay.ends,
        overlay.ts_ms,
        overlay.values,
        overlay.orders,
    )
    return runs


def _decode(rows: Rows, refs: NDArray[np.uint32], start_ms: int, end_ms: int, runs: Runs) -> None:
    status = decode_slices_kernel(rows, refs, start_ms, end_ms, runs.ends, runs.ts_ms, runs.values, runs.orders)
    assert status == 0, "a sealed column does not decode"


def gather_raw(
    held: SealedSlices,
    refs: NDArray[np.uint32],
    start_ms: int,
    end_ms: int,
    overlay: Runs,
    *,
    step_ms: int = 0,
    aggregation: int = 0,
    last_n: int = 0,
    orders_below_ms: int | None = None,
    samples_max: int,
    admit: Admit = admit_all,
) -> RawResult:
    """Samples of [start_ms, end_ms) of each series, in the order of refs. No lock needed; overlay is tidy.

    step_ms, aggregation: see tsdb.head.read.step_kernels. last_n: only the newest n of each series (0: all).
    orders_below_ms: give the order of samples below this time. admit: called before anything is decoded. Raises
    Overloaded (samples_limit) above samples_max samples, before decoding if the columns alone hold more.
    """
    if not step_ms and not last_n:
        certain = np.zeros(len(refs), np.int64)
        sealed_counts_kernel(held.sealed, refs, start_ms, end_ms, True, certain)
        check_samples(int(certain.sum()), samples_max)
    with_orders = orders_below_ms is not None
    capacities = _capacities(held, refs, start_ms, end_ms, overlay)
    kept_max = _kept_max(end_ms - start_ms, step_ms, last_n)
    admit(_bytes_max(capacities, kept_max, SAMPLE_BYTES + ORDER_BYTES * with_orders))
    blocks: list[RawResult] = []
    samples = 0
    for first, last, capacity in _blocks(capacities):
        runs = _join_into(held, refs[first:last], start_ms, end_ms, overlay.part(first, last), capacity, with_orders)
        if step_ms:
            aggregate_kernel(runs.starts, runs.ends, runs.ts_ms, runs.values, start_ms, step_ms, aggregation)
        blocks.append(_tight(compact(runs, last_n=last_n, with_orders=with_orders), len(runs.ts_ms)))
        samples += blocks[-1].samples
        check_samples(samples, samples_max)
    result = _concatenate(blocks)
    if orders_below_ms is not None and result.orders is not None:
        result.orders[result.ts_ms >= orders_below_ms] = -1
    return result


def _capacities(
    held: SealedSlices, refs: NDArray[np.uint32], start_ms: int, end_ms: int, overlay: Runs
) -> NDArray[np.int64]:
    """Upper bound of the samples of each ref."""
    capacities = overlay.counts
    sealed_counts_kernel(held.below, refs, start_ms, end_ms, False, capacities)
    sealed_counts_kernel(held.sealed, refs, start_ms, end_ms, False, capacities)
    return capacities


def _kept_max(range_ms: int, step_ms: int, last_n: int) -> int | None:
    """The most samples of one series that the result can have; None: no bound."""
    steps = -(-range_ms // step_ms) if step_ms else None
    return min(filter(None, (steps, last_n or None)), default=None)


def _bytes_max(capacities: NDArray[np.int64], kept_max: int | None, sample_bytes: int) -> int:
    """Upper bound of a gather's peak memory: one decoded block, the result, and its parts until they are joined."""
    total = int(capacities.sum())
    if total <= BLOCK_SAMPLES:
        return total * sample_bytes
    kept = total if kept_max is None else int(np.minimum(capacities, kept_max).sum())
    return (BLOCK_SAMPLES + int(capacities.max()) + 2 * kept) * sample_bytes


def _blocks(capacities: NDArray[np.int64]) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """Stretches of refs (first, last, capacity per ref) that together need about BLOCK_SAMPLES."""
    ends = np.cumsum(capacities)
    first, before = 0, 0
    while first < len(capacities):
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK_SAMPLES, side="right")))
        yield first, last, capacities[first:last]
        first, before = last, int(ends[last - 1])


def _tight(result: RawResult, capacity: int) -> RawResult:
    """The result. If most of its arrays is unused capacity, it is copied, because a caller may keep it for long."""
    if 2 * result.samples >= capacity:
        return result
    orders = None if result.orders is None else result.orders.copy()
    return RawResult(result.counts, result.ts_ms.copy(), result.values.copy(), orders)


def compact(runs: Runs, *, last_n: int = 0, with_orders: bool = False) -> RawResult:
    """Close the gaps between runs, and cut each run to its newest last_n (0: all). Overwrites `runs`."""
    counts = np.empty(len(runs.ends), np.uint32)
    total = compact_kernel(runs.starts, runs.ends, runs.ts_ms, runs.values, runs.orders, last_n, counts)
    orders = runs.orders[:total] if with_orders else None
    return RawResult(counts, runs.ts_ms[:total], runs.values[:total], orders)


def _concatenate(blocks: list[RawResult]) -> RawResult:
    if not blocks:
        return empty_raw(0)
    if len(blocks) == 1:
        return blocks[0]
    orders = [block.orders for block in blocks if block.orders is not None]
    return RawResult(
        np.concatenate([block.counts for block in blocks]),
        np.concatenate([block.ts_ms for block in blocks]),
        np.concatenate([block.values for block in blocks]),
        np.concatenate(orders) if orders else None,
    )


def check_samples(samples: int, samples_max: int) -> None:
    """Raises Overloaded (samples_limit) with limit and asked."""
    if samples > samples_max:
        raise Overloaded(
            f"the answer has at least {samples} samples; limit is {samples_max}:"
            " ask for a shorter range or fewer series",
            reason="samples_limit",
            limit=samples_max,
            asked=samples,
        )
