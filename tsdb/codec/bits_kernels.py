"""Bits of one integer: computes lengths, trailing zeros, zigzag, and the order-preserving integer of a float64.

All on int64 that wraps modulo 2^64, as two's complement does; a kernel that mixes int64 and uint64 would silently get
floats. Operations that must ignore the sign are intrinsics.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tsdb.codec.jit import helper

LOG2_OF_TOP = np.array([round(math.log2(1 + top / 256) * 65536) for top in range(256)])
ALL_BUT_SIGN = 0x7FFFFFFFFFFFFFFF


def _zeros(which: str) -> Any:
    def count(typing_context: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(64)
            function_type = ir.FunctionType(word, [word, ir.IntType(1)])
            function = builder.module.declare_intrinsic(which, [word], function_type)
            return builder.call(function, [args[0], ir.Constant(ir.IntType(1), 0)])

        return types.int64(types.int64), codegen

    return count


def _shift(typing_context: Any, value: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.lshr(args[0], args[1])

    return types.int64(types.int64, types.int64), codegen


shift_right: Any = intrinsic(_shift)
"""Logical shift of an int64, 0 <= bits <= 63."""


def _divide(typing_context: Any, value: Any, by: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        quotient = builder.udiv(builder.trunc(args[0], word), builder.trunc(args[1], word))
        return builder.zext(quotient, ir.IntType(64))

    return types.int64(types.int64, types.int64), codegen


divide_u32: Any = intrinsic(_divide)
"""Quotient of two integers below 2^32, the second not 0. It takes half the cycles of Python's 64-bit division, which
rounds."""
leading_zeros: Any = intrinsic(_zeros("llvm.ctlz"))
"""Number of zeros above the highest set bit of an int64; 64 for 0."""
trailing_zeros: Any = intrinsic(_zeros("llvm.cttz"))
"""Number of zeros below the lowest set bit of an int64; 64 for 0."""


def _multiply_high(typing_context: Any, left: Any, right: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


def _swap(typing_context: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        return builder.call(builder.module.declare_intrinsic("llvm.bswap", [word]), [args[0]])

    return types.uint64(types.uint64), codegen


multiply_high: Any = intrinsic(_multiply_high)
"""Upper 64 bits of the product of two uint64."""
swap_bytes: Any = intrinsic(_swap)
"""A uint64 with its bytes in reverse order."""


@helper
def bit_length(value: int) -> int:
    """Bits needed for value as unsigned: 0 for 0, 64 for a negative one."""
    return 64 - int(leading_zeros(value))


@helper
def log2_q16(value: int) -> int:
    """log2 of value >= 1 in units of 2^-16, within 0.006 of it. In integers, so that all machines choose alike."""
    length = bit_length(value)
    top = value >> (length - 9) if length > 9 else value << (9 - length)
    return ((length - 1) << 16) + int(LOG2_OF_TOP[top - 256])


@helper
def zigzag(value: int) -> int:
    """Maps 0, -1, 1, -2 ... to 0, 1, 2, 3 ..., unsigned in an int64."""
    return (value << 1) ^ (value >> 63)


@helper
def unzigzag(value: int) -> int:
    return int(shift_right(value, 1)) ^ -(value & 1)


@helper
def ordered(bits: int) -> int:
    """The int64 whose order is the order of the floats with these bits: -0.0 is -1, +0.0 is 0. Its own inverse."""
    return bits ^ ((bits >> 63) & ALL_BUT_SIGN)
