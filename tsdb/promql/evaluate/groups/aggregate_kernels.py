"""These kernels aggregate the series of each group, step by step."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, helper, kernel
from tsdb.promql.evaluate.ranges.quantile_kernels import quantile_of
from tsdb.promql.evaluate.sum_kernels import add, mean_of

SUM, COUNT, MIN, MAX, GROUP, AVG, STDDEV, STDVAR, QUANTILE = range(9)


@kernel
def aggregate_kernel(
    code: int,
    order: NDArray[np.int64],
    group_start: NDArray[np.int64],
    first_step: int,
    end_step: int,
    values: Array2[np.float64],
    present: Array2[np.bool_],
    parameter: NDArray[np.float64],
    out: Array2[np.float64],
    out_present: Array2[np.bool_],
) -> None:
    """Write out and out_present (groups, steps) for the steps [first_step, end_step).

    Rows of group g: order[group_start[g]:group_start[g + 1]], in order. parameter: the parameter of quantile at each
    step.

    """
    size = 0 if _is_running(code) else _largest(group_start)
    scratch, counts = np.empty((_TILE, size), np.float64), np.empty(_TILE, np.int64)
    for group in range(group_start.size - 1):
        rows = order[group_start[group] : group_start[group + 1]]
        if code == SUM:
            _add_up(rows, first_step, end_step, values, present, out[group], out_present[group])
            continue
        if _is_running(code):
            _fold(code, rows, first_step, end_step, values, present, out[group], out_present[group])
            continue
        for first in range(first_step, end_step, _TILE):
            end = min(first + _TILE, end_step)
            _gather(rows, first, end, values, present, scratch, counts)
            for step in range(first, end):
                count = counts[step - first]
                out_present[group, step] = count > 0
                out[group, step] = 0.0
                if count:
                    out[group, step] = _whole(code, scratch[step - first, :count], parameter[step])


@helper
def _is_running(code: int) -> bool:
    """Whether the value is updated series by series, so that the values of a group need not stand together."""
    return code in (SUM, COUNT, MIN, MAX, GROUP)


_TILE = 8  # Steps that are gathered at once: a row's values there lie in one cache line.


@helper
def _largest(group_start: NDArray[np.int64]) -> int:
    largest = 0
    for group in range(group_start.size - 1):
        largest = max(largest, group_start[group + 1] - group_start[group])
    return largest


@helper
def _gather(
    rows: NDArray[np.int64],
    first: int,
    end: int,
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
    scratch: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """The values that are present at each step [first, end), and their number."""
    for step in range(first, end):
        counts[step - first] = 0
    for row in rows:
        for step in range(first, end):
            if present[row, step]:
                scratch[step - first, counts[step - first]] = values[row, step]
                counts[step - first] += 1


@helper
def _whole(code: int, values: NDArray[np.float64], parameter: float) -> float:
    if code == AVG:
        return mean_of(values, 0, values.size)
    if code == STDVAR:
        return _variance(values)
    if code == STDDEV:
        return math.sqrt(_variance(values))
    return quantile_of(parameter, values, values.size)


@helper
def _variance(values: NDArray[np.float64]) -> float:
    """Population variance (Welford, Technometrics 1962), without compensation: that of a range is compensated."""
    mean, total = values[0], values[0] - values[0]  # The total is NaN when the first value is not finite.
    for index in range(1, values.size):
        delta = values[index] - mean
        mean += delta / (index + 1.0)
        total += delta * (values[index] - mean)
    return float(total / values.size)


@helper
def _fold(
    code: int,
    rows: NDArray[np.int64],
    first: int,
    end: int,
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
    out: NDArray[np.float64],
    out_present: NDArray[np.bool_],
) -> None:
    """Row after row, so that memory is read in its order."""
    for step in range(first, end):
        out[step] = 0.0
        out_present[step] = False
    for row in rows:
        for step in range(first, end):
            if not present[row, step]:
                continue
            value = values[row, step]
            if code == COUNT:
                out[step] += 1.0
            elif code == GROUP:
                out[step] = 1.0
            elif (
                not out_present[step]
                or math.isnan(out[step])
                or (value < out[step] if code == MIN else value > out[step])
            ):
                out[step] = value
            out_present[step] = True


@helper
def _add_up(
    rows: NDArray[np.int64],
    first: int,
    end: int,
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
    out: NDArray[np.float64],
    out_present: NDArray[np.bool_],
) -> None:
    for step in range(first, end):
        total, lost, found = 0.0, 0.0, False
        for row in rows:
            if present[row, step]:
                total, lost = add(values[row, step], total, lost)
                found = True
        out[step] = total if math.isinf(total) else total + lost
        out_present[step] = found


@kernel
def top_kernel(
    order: NDArray[np.int64],
    group_start: NDArray[np.int64],
    first_step: int,
    end_step: int,
    values: Array2[np.float64],
    present: Array2[np.bool_],
    count: NDArray[np.int64],
    sign: float,
    chosen: Array2[np.bool_],
) -> None:
    """Set chosen (series, steps) for the count[step] largest values of each group, in the steps [first_step, end_step);
    with sign -1.0 for the smallest values.

    Prometheus's heap would choose the same series, also among equal values.
    """
    heap, rows = np.empty(order.size, np.float64), np.empty(order.size, np.int64)
    for group in range(group_start.size - 1):
        for step in range(first_step, end_step):
            size = 0
            for index in range(group_start[group], group_start[group + 1]):
                row = order[index]
                if not present[row, step] or count[step] < 1:
                    continue
                value = sign * values[row, step]
                if size < count[step]:
                    heap[size], rows[size] = value, row
                    size += 1
                    _rise(heap, rows, size - 1)
                elif heap[0] < value or (math.isnan(heap[0]) and not math.isnan(value)):
                    heap[0], rows[0] = value, row
                    _sink(heap, rows, size)
            for index in range(size):
                chosen[rows[index], step] = True


@helper
def _less(one: float, other: float) -> bool:
    return math.isnan(one) or one < other


@helper
def _swap(heap: NDArray[np.float64], rows: NDArray[np.int64], one: int, other: int) -> None:
    heap[one], heap[other] = heap[other], heap[one]
    rows[one], rows[other] = rows[other], rows[one]


@helper
def _rise(heap: NDArray[np.float64], rows: NDArray[np.int64], at: int) -> None:
    while at > 0:
        parent = (at - 1) // 2
        if not _less(heap[at], heap[parent]):
            return
        _swap(heap, rows, at, parent)
        at = parent


@helper
def _sink(heap: NDArray[np.float64], rows: NDArray[np.int64], size: int) -> None:
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _less(heap[child + 1], heap[child]):
            child += 1
        if not _less(heap[child], heap[at]):
            return
        _swap(heap, rows, at, child)
        at = child


@kernel
def first_kernel(
    order: NDArray[np.int64],
    group_start: NDArray[np.int64],
    present: Array2[np.bool_],
    count: NDArray[np.int64],
    chosen: Array2[np.bool_],
) -> None:
    """Set chosen (series, steps) for the first count[step] series of each group."""
    for group in range(group_start.size - 1):
        for step in range(present.shape[1]):
            left = count[step]
            for index in range(group_start[group], group_start[group + 1]):
                if left > 0 and present[order[index], step]:
                    chosen[order[index], step] = True
                    left -= 1
