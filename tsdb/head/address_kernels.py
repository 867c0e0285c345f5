"""Arrays at addresses: lets one kernel walk any number of slices through a table of the addresses of their arrays.

Nothing here checks or owns memory: whoever calls a kernel with an address holds the array it belongs to for as long as
the call runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]  # numba is typed in part
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from tsdb.codec.jit import kernel


def _to_pointer(typing_context: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), codegen


_pointer: Any = intrinsic(_to_pointer)


@kernel
def signed(value: Any) -> int:
    """Any integer as int64: elements of unsigned arrays would make floats of sums with signed ones."""
    return np.int64(value)  # type: ignore[return-value]  # numba's integers are all of numpy's


@kernel
def u8_at(address: int, size: int) -> NDArray[np.uint8]:
    """The uint8 array of `size` elements at an address."""
    return carray(_pointer(signed(address)), (size,), np.uint8)


@kernel
def u32_at(address: int, size: int) -> NDArray[np.uint32]:
    """The uint32 array of `size` elements at an address."""
    return carray(_pointer(signed(address)), (size,), np.uint32)


@kernel
def i32_at(address: int, size: int) -> NDArray[np.int32]:
    """The int32 array of `size` elements at an address."""
    return carray(_pointer(signed(address)), (size,), np.int32)


@kernel
def i64_at(address: int, size: int) -> NDArray[np.int64]:
    """The int64 array of `size` elements at an address."""
    return carray(_pointer(signed(address)), (size,), np.int64)


@kernel
def f64_at(address: int, size: int) -> NDArray[np.float64]:
    """The float64 array of `size` elements at an address."""
    return carray(_pointer(signed(address)), (size,), np.float64)


def address_of(array: NDArray[Any]) -> int:
    """Where a contiguous array begins. The caller keeps the array alive as long as the address is used."""
    assert array.flags.c_contiguous, "an address stands for a contiguous array"
    return int(array.ctypes.data)
