"""Gather of COLUMNS: whole sealed columns of chosen series, not decoded, slice after slice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import SealedColumns
from tsdb.head.read.gather import check_samples
from tsdb.head.read.gather_columns_kernels import (
    NEED_AXES,
    NEED_AXIS_DATA,
    NEED_COLUMNS,
    NEED_DATA,
    NEED_SAMPLES,
    NEED_SIZE,
    copy_kernel,
    plan_kernel,
)
from tsdb.head.slices.rows import SEALED_END, SEALED_START, Rows


def gather_columns(
    sealed: Rows, refs: NDArray[np.uint32], start_ms: int, end_ms: int, *, samples_max: int
) -> SealedColumns:
    """Columns of all slices that touch [start_ms, end_ms), ascending. No lock needed.

    Raises Overloaded (samples_limit) when the whole columns hold over samples_max samples.
    """
    rows = sealed[(sealed[:, SEALED_START] < end_ms) & (sealed[:, SEALED_END] > start_ms)]
    keys = np.empty((len(rows), len(refs)), np.uint64)
    needs = np.zeros((len(rows), NEED_SIZE), np.int64)
    plan_kernel(rows, refs, keys, needs)
    total = needs.sum(axis=0).tolist()
    check_samples(total[NEED_SAMPLES], samples_max)
    columns, axes = total[NEED_COLUMNS], total[NEED_AXES]
    result = SealedColumns(
        samples=total[NEED_SAMPLES],
        series_index=np.empty(columns, np.uint32),
        column_lengths=np.empty(columns, np.uint32),
        axis_index=np.empty(columns, np.uint32),
        axis_base_ms=np.empty(axes, np.int64),
        axis_lengths=np.empty(axes, np.uint32),
        axis_counts=np.empty(axes, np.uint32),
        axes=np.empty(total[NEED_AXIS_DATA], np.uint8),
        data=np.empty(total[NEED_DATA], np.uint8),
    )
    copy_kernel(
        rows,
        keys,
        needs,
        result.series_index,
        result.column_lengths,
        result.axis_index,
        result.axis_base_ms,
        result.axis_lengths,
        result.axis_counts,
        result.axes,
        result.data,
    )
    return result
