"""Arrays at addresses: lets one kernel walk any number of slices through a table of the addresses of their arrays.

Nothing here checks or owns memory: the caller of a kernel holds the array of each address until the call returns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

from tsdb.codec.jit import helper


@helper
def signed(value: Any) -> int:
    """Any integer as int64: elements of unsigned arrays would make floats of sums with signed ones."""
    return np.int64(value)  # type: ignore[return-value]  # numba's integers are all of numpy's


def _array_at(item: Any) -> Any:
    array_type = types.Array(item, 1, "C")

    def array_at(typing_context: Any, address: Any, size: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(array_type)(context, builder)
            itemsize = context.get_constant(types.intp, item.bitwidth // 8)
            data = builder.inttoptr(args[0], array.data.type)
            populate_array(array, data, [args[1]], [itemsize], itemsize, meminfo=None)
            return array._getvalue()

        return array_type(types.int64, types.int64), codegen

    return intrinsic(array_at)


# u8_at(address, size): the array of `size` elements at an address, without a count of references.
u8_at: Any = _array_at(types.uint8)
u32_at: Any = _array_at(types.uint32)
i32_at: Any = _array_at(types.int32)
i64_at: Any = _array_at(types.int64)
f64_at: Any = _array_at(types.float64)


def address_of(array: NDArray[Any]) -> int:
    """Where a contiguous array begins. The caller keeps the array alive as long as the address is used."""
    assert array.flags.c_contiguous, "an address stands for a contiguous array"
    return int(array.ctypes.data)
