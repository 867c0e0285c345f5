"""Start columns have the bytes of docs/formats/columns.md, and take a few bytes for the series of real exporters."""

from __future__ import annotations

import numpy as np
import pytest

from tsdb.codec.columns.columns import decode_starts, encode_starts
from tsdb.model.errors import CorruptData

TS = np.arange(1000, 2000, 10, dtype=np.int64)  # 100 samples, 10 ms apart.

COLUMNS = {
    "empty": (TS[:0], TS[:0], b""),
    "none": (TS[:4], np.zeros(4, np.int64), bytes([4 << 2])),
    "counter": (TS[:4], np.full(4, 60, np.int64), bytes([4 << 2 | 1, 120])),
    "counter that restarts": (TS[:4], np.array([60, 60, 63, 63]), bytes([2 << 2 | 1, 120, 2 << 2 | 1, 6])),
    "delta of one interval": (TS[:4], TS[:4] - 10, bytes([4 << 2 | 2, 20])),
    "delta since the sample before": (
        np.array([1000, 1010, 1025, 1050]),
        np.array([0, 1000, 1010, 1025]),
        bytes([1 << 2, 3 << 2 | 3]),
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_the_bytes_of_the_document(name: str) -> None:
    ts, starts, data = COLUMNS[name]
    assert encode_starts(ts, starts) == data
    assert decode_starts(data, ts).tolist() == starts.tolist()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes([3 << 2]),
        bytes([5 << 2]),
        bytes([0, 4 << 2]),
        bytes([4 << 2 | 3]),
        bytes([4 << 2 | 1]),
        bytes([4 << 2, 0]),
        b"\xff" * 10,
    ],
    ids=["empty", "too few", "too many", "empty run", "chained first", "no number", "trailing byte", "not a varint"],
)
def test_bytes_that_are_no_column_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_starts(data, TS[:4])
