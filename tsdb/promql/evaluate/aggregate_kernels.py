"""Kernels of aggregations over the series of each group, step by step."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel
from tsdb.promql.evaluate.quantile_kernels import quantile_of
from tsdb.promql.evaluate.sum_kernels import add, mean_of, variance_of

SUM, COUNT, MIN, MAX, GROUP, AVG, STDDEV, STDVAR, QUANTILE = range(9)


@kernel
def aggregate_kernel(
    code: int,
    order: NDArray[np.int64],
    group_start: NDArray[np.int64],
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
    parameter: NDArray[np.float64],
    out: NDArray[np.float64],
    out_present: NDArray[np.bool_],
) -> None:
    """Write out and out_present (groups, steps). Rows of group g: order[group_start[g]:group_start[g + 1]], in order.

    parameter: of quantile, at each step.
    """
    steps = values.shape[1]
    lost = np.empty(steps, np.float64)
    for group in range(group_start.size - 1):
        first, last = group_start[group], group_start[group + 1]
        if code <= GROUP:
            _fold(code, order, first, last, values, present, out[group], out_present[group], lost)
            continue
        scratch = np.empty(last - first, np.float64)
        for step in range(steps):
            count = 0
            for index in range(first, last):
                row = order[index]
                if present[row, step]:
                    scratch[count] = values[row, step]
                    count += 1
            out_present[group, step] = count > 0
            if count:
                out[group, step] = _whole(code, scratch[:count], parameter[step])


@helper
def _whole(code: int, values: NDArray[np.float64], parameter: float) -> float:
    if code == AVG:
        return mean_of(values, 0, values.size)
    if code == STDVAR:
        return variance_of(values, 0, values.size)
    if code == STDDEV:
        return math.sqrt(variance_of(values, 0, values.size))
    return quantile_of(parameter, values, values.size)


@helper
def _fold(
    code: int,
    order: NDArray[np.int64],
    first: int,
    last: int,
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
    out: NDArray[np.float64],
    out_present: NDArray[np.bool_],
    lost: NDArray[np.float64],
) -> None:
    """Row after row, so that memory is read in its order."""
    out[:] = 0.0
    lost[:] = 0.0
    out_present[:] = False
    for index in range(first, last):
        row = order[index]
        for step in range(out.size):
            if not present[row, step]:
                continue
            value = values[row, step]
            if code == SUM:
                out[step], lost[step] = add(value, out[step], lost[step])
            elif code == COUNT:
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
    if code == SUM:
        for step in range(out.size):
            if not math.isinf(out[step]):
                out[step] += lost[step]


@kernel
def top_kernel(
    order: NDArray[np.int64],
    group_start: NDArray[np.int64],
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
    count: NDArray[np.int64],
    sign: float,
    chosen: NDArray[np.bool_],
) -> None:
    """Set chosen (series, steps) for the count[step] largest values of each group; with sign -1.0 the smallest.

    The series that stay are those of Prometheus's heap, also among equal values.
    """
    heap, rows = np.empty(order.size, np.float64), np.empty(order.size, np.int64)
    for group in range(group_start.size - 1):
        for step in range(values.shape[1]):
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
    present: NDArray[np.bool_],
    count: NDArray[np.int64],
    chosen: NDArray[np.bool_],
) -> None:
    """Set chosen (series, steps) for the first count[step] series of each group."""
    for group in range(group_start.size - 1):
        for step in range(present.shape[1]):
            left = count[step]
            for index in range(group_start[group], group_start[group + 1]):
                if left > 0 and present[order[index], step]:
                    chosen[order[index], step] = True
                    left -= 1
