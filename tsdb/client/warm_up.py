"""Compiles the kernels that decode COLUMNS, so that the first select does not wait for them."""

from __future__ import annotations

import numpy as np

from tsdb.client.answer.columns import PartitionColumns, decode_partitions
from tsdb.codec.columns.columns import encode_times, encode_values
from tsdb.v1 import reader_pb2

SAMPLES = 16
STEP_MS = 1000


def warm_up() -> None:
    """Decode a small answer and check the result."""
    times = np.arange(SAMPLES, dtype=np.int64) * STEP_MS
    counts, ts_ms, values = decode_partitions(
        [PartitionColumns(1, [_frame(times)], [_overlay()])], 0, SAMPLES * STEP_MS + 1
    )
    assert counts.tolist() == [SAMPLES + 1]
    assert ts_ms[-1] == SAMPLES * STEP_MS
    assert values[-1] == 1.0


def _frame(times: np.typing.NDArray[np.int64]) -> reader_pb2.ColumnsFrame:
    # Noisy values, so that their encoding is compiled too.
    data = encode_values(np.sin(times.astype(np.float64)))
    axis = encode_times(times)
    return reader_pb2.ColumnsFrame(
        series_index=_u32(0),
        column_lengths=_u32(len(data)),
        axis_index=_u32(0),
        axis_base_ms=bytes(8),
        axis_lengths=_u32(len(axis)),
        axis_counts=_u32(SAMPLES),
        axes=axis,
        data=data,
    )


def _overlay() -> reader_pb2.RawFrame:
    return reader_pb2.RawFrame(
        counts=_u32(1),
        ts_ms=np.array([SAMPLES * STEP_MS], "<i8").tobytes(),
        values=np.array([1.0]).tobytes(),
        overlay=True,
    )


def _u32(value: int) -> bytes:
    return np.array([value], "<u4").tobytes()
