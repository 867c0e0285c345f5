"""Arrays at addresses: lets one kernel walk any number of slices through a table of the addresses of their arrays.

Nothing here checks or owns memory: the caller of a kernel holds the array of each address until the call returns.
"""

from __future__ import annotations

import ctypes
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, intrinsic

Item = TypeVar("Item", bound=np.generic)


@helper
def signed(value: Any) -> int:
    """Any integer as int64: elements of unsigned arrays would make floats of sums with signed ones."""
    return np.int64(value)  # type: ignore[return-value]  # numba's integers are all of numpy's


@intrinsic
def u8_at(address: int, size: int) -> NDArray[np.uint8]:
    """The array of `size` elements at an address, without a count of references."""
    return _array_at(address, size, np.uint8)


@intrinsic
def u32_at(address: int, size: int) -> NDArray[np.uint32]:
    """The array of `size` elements at an address, without a count of references."""
    return _array_at(address, size, np.uint32)


@intrinsic
def i32_at(address: int, size: int) -> NDArray[np.int32]:
    """The array of `size` elements at an address, without a count of references."""
    return _array_at(address, size, np.int32)


@intrinsic
def i64_at(address: int, size: int) -> NDArray[np.int64]:
    """The array of `size` elements at an address, without a count of references."""
    return _array_at(address, size, np.int64)


@intrinsic
def f64_at(address: int, size: int) -> NDArray[np.float64]:
    """The array of `size` elements at an address, without a count of references."""
    return _array_at(address, size, np.float64)


def _array_at(address: int, size: int, item: type[Item]) -> NDArray[Item]:
    held = (ctypes.c_char * (int(size) * np.dtype(item).itemsize)).from_address(int(address))
    return np.frombuffer(memoryview(held), item)


def address_of(array: NDArray[Any]) -> int:
    """Where a contiguous array begins. The caller keeps the array alive as long as the address is used."""
    assert array.flags.c_contiguous, "an address stands for a contiguous array"
    return int(array.ctypes.data)
