"""Intrinsics: the code of the functions that numba's Python cannot express. Their Python twins are in `tsdb`.

By the name of the twin. Each is a function of numba's typing context and of the types of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.np.arrayobj import populate_array

Intrinsic = Callable[..., tuple[Any, Callable[..., Any]]]

I32, I64, I128 = ir.IntType(32), ir.IntType(64), ir.IntType(128)


def _contiguous(*arrays: Any) -> None:
    for array in arrays:
        if not isinstance(array, types.Array) or array.layout != "C":
            raise TypingError(f"raw memory access needs a contiguous array, got {array}")


def _byte_pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    start = builder.bitcast(data, cgutils.voidptr_t)
    return builder.gep(start, [position])


def _loader(result: Any, bits: int) -> Intrinsic:
    def load(typing_context: Any, data: Any, position: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _byte_pointer(context, builder, signature.args[0], args[0], args[1])
            typed = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            return builder.load(typed, align=1)

        _contiguous(data)
        return result(data, types.intp), codegen

    return load


def _storer(stored: Any, bits: int) -> Intrinsic:
    def store(typing_context: Any, data: Any, position: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _byte_pointer(context, builder, signature.args[0], args[0], args[1])
            typed = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            builder.store(args[2], typed, align=1)
            return context.get_dummy_value()

        _contiguous(data)
        return types.void(data, types.intp, stored), codegen

    return store


def _copy(typing_context: Any, target: Any, target_position: Any, source: Any, source_position: Any, count: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _byte_pointer(context, builder, signature.args[0], args[0], args[1])
        origin = _byte_pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, to, origin, args[4], 1, align=1)
        return context.get_dummy_value()

    _contiguous(target, source)
    return types.void(target, types.intp, source, types.intp, types.intp), codegen


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


def _rows(typing_context: Any, data: Any, start: Any, rows: Any, columns: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, args[0])
        array = context.make_array(signature.return_type)(context, builder)
        stride = builder.mul(args[3], source.itemsize)
        populate_array(
            array,
            builder.gep(source.data, [args[1]]),
            args[2:],
            [stride, source.itemsize],
            source.itemsize,
            source.meminfo,
        )
        return impl_ret_borrowed(context, builder, signature.return_type, array._getvalue())

    _contiguous(data)
    if data.ndim != 1:
        raise TypingError(f"only an array of one dimension can be seen as rows, got {data}")
    return data.copy(ndim=2)(data, types.intp, types.intp, types.intp), codegen


def _array_at(item: Any) -> Intrinsic:
    array_type = types.Array(item, 1, "C")

    def array_at(typing_context: Any, address: Any, size: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(array_type)(context, builder)
            itemsize = context.get_constant(types.intp, item.bitwidth // 8)
            data = builder.inttoptr(args[0], array.data.type)
            populate_array(array, data, [args[1]], [itemsize], itemsize, meminfo=None)
            return array._getvalue()

        return array_type(types.int64, types.int64), codegen

    return array_at


def _zeros(which: str) -> Intrinsic:
    def count(typing_context: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            function_type = ir.FunctionType(I64, [I64, ir.IntType(1)])
            function = builder.module.declare_intrinsic(which, [I64], function_type)
            return builder.call(function, [args[0], ir.Constant(ir.IntType(1), 0)])

        return types.int64(types.uint64 if value == types.uint64 else types.int64), codegen

    return count


def _shift(typing_context: Any, value: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.lshr(args[0], args[1])

    return types.int64(types.int64, types.int64), codegen


def _divide(typing_context: Any, value: Any, by: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        quotient = builder.udiv(builder.trunc(args[0], I32), builder.trunc(args[1], I32))
        return builder.zext(quotient, I64)

    return types.int64(types.int64, types.int64), codegen


def _multiply_high(typing_context: Any, left: Any, right: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.mul(builder.zext(args[0], I128), builder.zext(args[1], I128))
        return builder.trunc(builder.lshr(product, ir.Constant(I128, 64)), I64)

    return types.uint64(types.uint64, types.uint64), codegen


def _swap(typing_context: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(builder.module.declare_intrinsic("llvm.bswap", [I64]), [args[0]])

    return types.uint64(types.uint64), codegen


def _crc(typing_context: Any, crc: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", (), ir.FunctionType(I64, [I64, I64]))
        return builder.call(function, args)

    return types.uint64(types.uint64, types.uint64), codegen


INTRINSICS: dict[str, Intrinsic] = {
    "load_u32": _loader(types.uint32, 32),
    "load_u64": _loader(types.uint64, 64),
    "load_i64": _loader(types.int64, 64),
    "store_u32": _storer(types.uint32, 32),
    "store_u64": _storer(types.uint64, 64),
    "store_i64": _storer(types.int64, 64),
    "copy_bytes": _copy,
    "as_int64": _view,
    "as_rows": _rows,
    "u8_at": _array_at(types.uint8),
    "u32_at": _array_at(types.uint32),
    "i32_at": _array_at(types.int32),
    "i64_at": _array_at(types.int64),
    "f64_at": _array_at(types.float64),
    "shift_right": _shift,
    "divide_u32": _divide,
    "leading_zeros": _zeros("llvm.ctlz"),
    "trailing_zeros": _zeros("llvm.cttz"),
    "multiply_high": _multiply_high,
    "swap_bytes": _swap,
    "crc32c_word": _crc,
}
