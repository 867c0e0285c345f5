"""Has unaligned little-endian loads, stores and copies for kernels.

Records lie back to back in one buffer, so their fields have no alignment. Nothing here checks a bound: the calling
kernel has. Positions are byte positions from the start of the array's data, whatever its dtype; arrays are contiguous.
Formats are little-endian and so is every machine we run on; another is refused at import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

if sys.byteorder != "little":
    raise ImportError("kafka-tsdb needs a little-endian machine: its formats are read in place")


def _contiguous(*arrays: Any) -> None:
    for array in arrays:
        if not isinstance(array, types.Array) or array.layout != "C":
            raise TypingError(f"raw memory access needs a contiguous array, got {array}")


def _byte_pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    start = builder.bitcast(data, cgutils.voidptr_t)
    return builder.gep(start, [position])


def _loader(result: Any, bits: int) -> Callable[..., Any]:
    def load(typing_context: Any, data: Any, position: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _byte_pointer(context, builder, signature.args[0], args[0], args[1])
            typed = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            return builder.load(typed, align=1)

        _contiguous(data)
        return result(data, types.intp), codegen

    return load


def _storer(stored: Any, bits: int) -> Callable[..., Any]:
    def store(typing_context: Any, data: Any, position: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _byte_pointer(context, builder, signature.args[0], args[0], args[1])
            typed = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            builder.store(args[2], typed, align=1)
            return context.get_dummy_value()

        _contiguous(data)
        return types.void(data, types.intp, stored), codegen

    return store


load_u32 = intrinsic(_loader(types.uint32, 32))
load_u64 = intrinsic(_loader(types.uint64, 64))
load_i64 = intrinsic(_loader(types.int64, 64))
store_u32 = intrinsic(_storer(types.uint32, 32))
store_u64 = intrinsic(_storer(types.uint64, 64))
store_i64 = intrinsic(_storer(types.int64, 64))


def _copy(typing_context: Any, target: Any, target_position: Any, source: Any, source_position: Any, count: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _byte_pointer(context, builder, signature.args[0], args[0], args[1])
        origin = _byte_pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, to, origin, args[4], 1, align=1)
        return context.get_dummy_value()

    _contiguous(target, source)
    return types.void(target, types.intp, source, types.intp, types.intp), codegen


# copy_bytes(target, target_position, source, source_position, count): memcpy between arrays that do not overlap.
copy_bytes: Any = intrinsic(_copy)


def _view(typing_context: Any, data: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, args[0])
        view = context.make_array(signature.return_type)(context, builder)
        for field in ("meminfo", "parent", "nitems", "itemsize", "shape", "strides"):
            setattr(view, field, getattr(source, field))
        view.data = builder.bitcast(source.data, view.data.type)
        return impl_ret_borrowed(context, builder, signature.return_type, view._getvalue())

    _contiguous(data)
    if data.ndim != 1 or data.dtype.bitwidth != 64:
        raise TypingError(f"only an array of 8-byte items can be seen as int64, got {data}")
    return data.copy(dtype=types.int64)(data), codegen


# as_int64(array): the same memory as int64, so that one compilation of a kernel serves floats and integers.
as_int64: Any = intrinsic(_view)
