"""Kernels for tests: most call one helper, so that a test runs its machine code and not its Python.

These kernels get a separate library, which has the kernels of the packages too.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tsdb.codec import (
    bits_kernels,
    crc32c_kernels,
    memory_kernels,
    murmur2_kernels,
    overlay_kernels,
    utf8_kernels,
    xxh3_kernels,
)
from tsdb.codec.columns import entropy_kernels, scale_kernels
from tsdb.codec.jit import Array2, helper, kernel, request_kernel, short_kernel
from tsdb.head.slices.address_kernels import f64_at, i32_at, i64_at, u8_at, u32_at
from tsdb.index import series_table_kernels


@kernel
def integers_of(
    values: NDArray[np.float64],
    start: int,
    n: int,
    integers: NDArray[np.int64],
    exceptions: NDArray[np.int64],
) -> tuple[int, int]:
    return scale_kernels.integers_of(values, start, n, integers, exceptions)


@kernel
def proves(scale: int, number: float) -> bool:
    return scale_kernels.proves(scale, number)


@kernel
def printed(number: float) -> float:
    return scale_kernels.printed(number)


@kernel
def to_float(scale: int, value: int) -> float:
    return scale_kernels.to_float(scale, value)


@kernel
def encode_symbols(
    symbols: NDArray[np.int64], n: int, alphabet: int, out: NDArray[np.uint8], pos: int, end: int
) -> int:
    return entropy_kernels.encode_symbols(symbols, n, alphabet, out, pos, end)


@kernel
def decode_symbols(
    data: NDArray[np.uint8], pos: int, end: int, n: int, alphabet: int, target: NDArray[np.int64], at: int
) -> int:
    return entropy_kernels.decode_symbols(data, pos, end, n, alphabet, target, at)


@kernel
def write_entropy(residuals: NDArray[np.int64], count: int, out: NDArray[np.uint8], pos: int, end: int) -> int:
    return entropy_kernels.write_entropy(residuals, count, out, pos, end)


@kernel
def read_entropy(data: NDArray[np.uint8], pos: int, end: int, count: int, target: NDArray[np.int64], at: int) -> int:
    return entropy_kernels.read_entropy(data, pos, end, count, target, at)


@kernel
def sort_run(
    ts: NDArray[np.int64], values: NDArray[np.float64], orders: NDArray[np.int64], start: int, end: int
) -> int:
    return overlay_kernels.sort_run_kernel(ts, values, orders, start, end)


@kernel
def merge_run(
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
    start: int,
    end: int,
    over_ts: NDArray[np.int64],
    over_values: NDArray[np.float64],
    over_orders: NDArray[np.int64],
    over_start: int,
    over_end: int,
) -> int:
    return overlay_kernels.merge_run_kernel(
        ts, values, orders, start, end, over_ts, over_values, over_orders, over_start, over_end
    )


@kernel
def insert_ref(
    keys: NDArray[np.uint64], refs: NDArray[np.uint32], used: NDArray[np.int64], series_id: np.uint64, ref: np.uint32
) -> None:
    series_table_kernels.insert_ref_kernel(keys, refs, used, series_id, ref)


@kernel
def extend_crc32c_portable(crc: np.uint32, data: NDArray[np.uint8], start: int, end: int) -> np.uint32:
    return crc32c_kernels.extend_portable_kernel(crc, data, start, end)


@kernel
def extend_crc32c(crc: np.uint32, data: NDArray[np.uint8], start: int, end: int) -> np.uint32:
    """With the processor's instruction, where the level of the build has it."""
    return crc32c_kernels.crc32c_extend_kernel(crc, data, start, end)


@kernel
def xxh3(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    seed: np.uint64,
    secret: NDArray[np.uint8],
    out: NDArray[np.uint64],
) -> None:
    for row in range(out.size):
        out[row] = xxh3_kernels.xxh3_64(data, starts[row], ends[row], seed, secret)


@kernel
def murmur2(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    for row in range(out.size):
        out[row] = murmur2_kernels.murmur2(data, starts[row], ends[row])


@kernel
def is_utf8(data: NDArray[np.uint8], start: int, end: int) -> bool:
    return utf8_kernels.is_utf8(data, start, end)


@kernel
def echo(
    integer: int, word: np.uint64, small: np.uint32, number: float, flag: bool
) -> tuple[int, np.uint64, np.uint32, float, bool]:
    return integer, word, small, number, flag


@kernel
def total(rows: Array2[np.int64]) -> int:
    found = 0
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            found += rows[row, column]
    return found


@kernel
def total_of_pair(pair: Annotated[tuple[NDArray[np.int64], ...], 1, 2]) -> int:
    return total_of(pair[0]) + total_of(pair[1])


@helper
def total_of(array: NDArray[np.int64]) -> int:
    found = 0
    for item in array:
        found += item
    return found


@kernel
def reversed_total(array: NDArray[np.int64]) -> int:
    """Weighs each item by its place from the end, over an array that the kernel allocates."""
    backwards = np.empty(array.size, np.int64)
    for place in range(array.size):
        backwards[array.size - 1 - place] = array[place]
    found = 0
    for place in range(array.size):
        found += place * backwards[place]
    return found


@kernel
def allocate(items: int) -> int:
    scratch = np.empty(items, np.int64)
    scratch[0] = scratch[items - 1] = 1
    return total_of(scratch[:1])


@kernel
def fill(out: NDArray[np.uint64], rounds: int) -> None:
    fill_slowly(out, rounds)


@request_kernel
def fill_of_request(out: NDArray[np.uint64], rounds: int) -> None:
    fill_slowly(out, rounds)


@short_kernel
def fill_with_gil(out: NDArray[np.uint64], rounds: int) -> None:
    fill_slowly(out, rounds)


@helper
def fill_slowly(out: NDArray[np.uint64], rounds: int) -> None:
    """Every item depends on the one before, so the items are written in order."""
    word = np.uint64(1)
    for place in range(out.size):
        for _ in range(rounds):
            word = bits_kernels.swap_bytes(word * np.uint64(0x9E3779B185EBCA87) + np.uint64(1))
        out[place] = word | np.uint64(1)


@helper
def apply_bits(value: int, word: np.uint64, bits: int, words: NDArray[np.uint64], integers: NDArray[np.int64]) -> None:
    """The intrinsics of bits_kernels, each with its result in a separate place."""
    integers[0] = bits_kernels.shift_right(value, bits)
    integers[1] = bits_kernels.divide_u32(value & 0xFFFFFFFF, bits + 1)
    integers[2] = bits_kernels.leading_zeros(value)
    integers[3] = bits_kernels.trailing_zeros(value)
    integers[4] = bits_kernels.leading_zeros(word)
    integers[5] = bits_kernels.trailing_zeros(word)
    words[0] = bits_kernels.multiply_high(word, np.uint64(0xFEDCBA9876543210))
    words[1] = bits_kernels.swap_bytes(word)


@kernel
def apply_bits_kernel(
    value: int, word: np.uint64, bits: int, words: NDArray[np.uint64], integers: NDArray[np.int64]
) -> None:
    apply_bits(value, word, bits, words, integers)


@helper
def move_bytes(data: NDArray[np.uint8], place: int, out: NDArray[np.uint8], integers: NDArray[np.int64]) -> None:
    """The intrinsics of memory_kernels: three loads of `data` stored in `out`, a copy, and arrays of other shapes."""
    memory_kernels.store_u32(out, place, memory_kernels.load_u32(data, place + 1))
    memory_kernels.store_u64(out, place + 4, memory_kernels.load_u64(data, place + 2))
    memory_kernels.store_i64(out, place + 12, memory_kernels.load_i64(data, place + 3))
    memory_kernels.copy_bytes(out, place + 20, data, place, 7)
    rows = memory_kernels.as_rows(data, place, 2, 3)
    for row in range(2):
        for column in range(3):
            integers[row * 3 + column] = np.int64(rows[row, column])


@kernel
def move_bytes_kernel(data: NDArray[np.uint8], place: int, out: NDArray[np.uint8], integers: NDArray[np.int64]) -> None:
    move_bytes(data, place, out, integers)


@helper
def read_addresses(addresses: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    """The first and the last of three items of each kind of array at an address."""
    bytes_, words, signed = u8_at(addresses[0], 3), u32_at(addresses[1], 3), i32_at(addresses[2], 3)
    integers, floats = i64_at(addresses[3], 3), f64_at(addresses[4], 3)
    out[0], out[1] = bytes_[0], bytes_[2]
    out[2], out[3] = words[0], words[2]
    out[4], out[5] = signed[0], signed[2]
    out[6], out[7] = integers[0], integers[2]
    out[8], out[9] = floats[0], floats[2]
    out[10] = memory_kernels.as_int64(floats)[2]


@kernel
def read_addresses_kernel(addresses: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    read_addresses(addresses, out)
