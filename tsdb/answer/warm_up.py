"""Compiles the kernels that decode COLUMNS, so that the first select does not wait for them."""

from __future__ import annotations

import numpy as np

from tsdb.answer.answer import RawResult, SealedColumns
from tsdb.answer.columns import PartitionColumns, decode_partitions
from tsdb.codec.columns.columns import encode_times, encode_values

SAMPLES = 16
STEP_MS = 1000


def warm_up() -> None:
    """Decode a small answer and check the result."""
    times = np.arange(SAMPLES, dtype=np.int64) * STEP_MS
    counts, ts_ms, values = decode_partitions(
        [PartitionColumns(1, [_columns(times)], [_overlay()])], 0, SAMPLES * STEP_MS + 1
    )
    assert counts.tolist() == [SAMPLES + 1]
    assert ts_ms[-1] == SAMPLES * STEP_MS
    assert values[-1] == 1.0


def _columns(times: np.typing.NDArray[np.int64]) -> SealedColumns:
    # Noisy values, so that their encoding is compiled too.
    data = encode_values(np.sin(times.astype(np.float64)))
    axis = encode_times(times)
    columns = SealedColumns(
        SAMPLES,
        series_index=_u32(0),
        column_lengths=_u32(len(data)),
        axis_index=_u32(0),
        axis_base_ms=np.zeros(1, np.int64),
        axis_lengths=_u32(len(axis)),
        axis_counts=_u32(SAMPLES),
        axes=np.frombuffer(axis, np.uint8),
        data=np.frombuffer(data, np.uint8),
    )
    columns.freeze()
    return columns


def _overlay() -> RawResult:
    return RawResult(_u32(1), np.array([SAMPLES * STEP_MS]), np.array([1.0]))


def _u32(value: int) -> np.typing.NDArray[np.uint32]:
    return np.array([value], np.uint32)
