"""Has unaligned little-endian loads, stores and copies for kernels.

Records lie back to back in one buffer, so their fields have no alignment. Nothing here checks a bound: the calling
kernel has. Positions are byte positions from the start of the array's data, whatever its dtype; arrays are contiguous.
Formats are little-endian and so is every machine we run on; another is refused at import.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, Scalar, intrinsic

if sys.byteorder != "little":
    raise ImportError("kafka-tsdb needs a little-endian machine: its formats are read in place")


@intrinsic
def load_u32(data: NDArray[Any], position: int) -> np.uint32:
    """The uint32 at a byte position."""
    return np.uint32(_read(data, position, 4))


@intrinsic
def load_u64(data: NDArray[Any], position: int) -> np.uint64:
    """The uint64 at a byte position."""
    return np.uint64(_read(data, position, 8))


@intrinsic
def load_i64(data: NDArray[Any], position: int) -> int:
    """The int64 at a byte position."""
    return int(np.uint64(_read(data, position, 8)).view(np.int64))


@intrinsic
def store_u32(data: NDArray[Any], position: int, value: Any) -> None:
    """Write a uint32 at a byte position."""
    _write(data, position, value, 4)


@intrinsic
def store_u64(data: NDArray[Any], position: int, value: Any) -> None:
    """Write a uint64 at a byte position."""
    _write(data, position, value, 8)


@intrinsic
def store_i64(data: NDArray[Any], position: int, value: Any) -> None:
    """Write an int64 at a byte position."""
    _write(data, position, value, 8)


@intrinsic
def copy_bytes(
    target: NDArray[Any], target_position: int, source: NDArray[Any], source_position: int, count: int
) -> None:
    """Copy bytes between arrays that do not overlap."""
    target.view(np.uint8)[target_position : target_position + count] = source.view(np.uint8)[
        source_position : source_position + count
    ]


@intrinsic
def as_int64(data: NDArray[Any]) -> NDArray[np.int64]:
    """The same memory as int64, so that one helper serves floats and integers."""
    return data.view(np.int64)


@intrinsic
def as_rows(data: NDArray[Scalar], start: int, rows: int, columns: int) -> Array2[Scalar]:
    """The same memory from the element `start` on as an array of two dimensions. The caller has checked the bounds."""
    return data[start : start + rows * columns].reshape(rows, columns)


def _read(data: NDArray[Any], position: int, size: int) -> int:
    return int.from_bytes(data.view(np.uint8)[position : position + size].tobytes(), "little")


def _write(data: NDArray[Any], position: int, value: Any, size: int) -> None:
    written = (int(value) % (1 << (8 * size))).to_bytes(size, "little")
    data.view(np.uint8)[position : position + size] = np.frombuffer(written, np.uint8)
