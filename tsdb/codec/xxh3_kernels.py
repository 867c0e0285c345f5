"""Computes xxh3-64 of byte ranges. Twin: the xxhash library.

Source: XXH3 of xxHash 0.8 (Yann Collet), doc/xxhash_spec.md. For data of more than 240 bytes, a call with a seed needs
`long_secret(seed)`, as the algorithm specifies; with seed 0 that is the default secret.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import multiply_high, swap_bytes
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_u32, load_u64

_SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
        "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
        "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)
SECRET_BYTES = 192

_P32_1, _P32_2, _P32_3 = np.uint64(0x9E3779B1), np.uint64(0x85EBCA77), np.uint64(0xC2B2AE3D)
_P64_1, _P64_2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_P64_3, _P64_4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_P64_5 = np.uint64(0x27D4EB2F165667C5)
_MX_1, _MX_2 = np.uint64(0x165667919E3779F9), np.uint64(0x9FB21C651E98DF25)
_LOW = np.uint64(0xFFFFFFFF)
_8, _24, _28, _29, _32, _33, _35, _37, _47, _49 = (np.uint64(n) for n in (8, 24, 28, 29, 32, 33, 35, 37, 47, 49))
_15, _64, _16 = np.uint64(15), np.uint64(64), np.uint64(16)
_LONG = 240  # Longer data is hashed in stripes.
_STRIPE = 64
_STRIPES_A_BLOCK = (SECRET_BYTES - _STRIPE) // 8


def long_secret(seed: int) -> NDArray[np.uint8]:
    """The secret of a seed for data of more than 240 bytes, uint8 (192,)."""
    words = _SECRET[:SECRET_BYTES].view(np.uint64).copy()
    words[0::2] += np.uint64(seed)
    words[1::2] -= np.uint64(seed)
    return words.view(np.uint8)


@helper
def xxh3_64(
    data: NDArray[np.uint8], start: int, end: int, seed: np.uint64, stripes_secret: NDArray[np.uint8]
) -> np.uint64:
    """xxh3-64 of data[start:end], uint64. stripes_secret: long_secret(seed)."""
    size = end - start
    if size > _LONG:
        return _of_long(data, start, end, stripes_secret)
    if size > 128:
        return _of_129_to_240(data, start, end, seed)
    if size > 16:
        return _of_17_to_128(data, start, end, seed)
    return _of_up_to_16(data, start, end, seed)


@helper
def _of_up_to_16(data: NDArray[np.uint8], start: int, end: int, seed: np.uint64) -> np.uint64:
    size = end - start
    length = np.uint64(size)
    if size > 8:
        flip_1 = (load_u64(_SECRET, 24) ^ load_u64(_SECRET, 32)) + seed
        flip_2 = (load_u64(_SECRET, 40) ^ load_u64(_SECRET, 48)) - seed
        low = load_u64(data, start) ^ flip_1
        high = load_u64(data, end - 8) ^ flip_2
        return _avalanche(length + swap_bytes(low) + high + (low * high ^ multiply_high(low, high)))
    if size >= 4:
        mixed_seed = seed ^ (swap_bytes(seed & _LOW) & ~_LOW)
        word = np.uint64(load_u32(data, end - 4)) + (np.uint64(load_u32(data, start)) << _32)
        word ^= (load_u64(_SECRET, 8) ^ load_u64(_SECRET, 16)) - mixed_seed
        word ^= (word << _49 | word >> np.uint64(15)) ^ (word << _24 | word >> np.uint64(40))
        word *= _MX_2
        word ^= (word >> _35) + length
        word *= _MX_2
        return word ^ (word >> _28)
    if size > 0:
        first, middle, last = data[start], data[start + (size >> 1)], data[end - 1]
        word = np.uint64(first) << _16 | np.uint64(middle) << _24 | np.uint64(last) | length << _8
        flip = (np.uint64(load_u32(_SECRET, 0)) ^ np.uint64(load_u32(_SECRET, 4))) + seed
        return _avalanche_xxh64(word ^ flip)
    return _avalanche_xxh64(seed ^ load_u64(_SECRET, 56) ^ load_u64(_SECRET, 64))


@helper
def _of_17_to_128(data: NDArray[np.uint8], start: int, end: int, seed: np.uint64) -> np.uint64:
    size = end - start
    total = np.uint64(size) * _P64_1
    for index in range((size - 1) >> 5, -1, -1):
        total += _mix_16(data, start + 16 * index, 32 * index, seed)
        total += _mix_16(data, end - 16 * (index + 1), 32 * index + 16, seed)
    return _avalanche(total)


@helper
def _of_129_to_240(data: NDArray[np.uint8], start: int, end: int, seed: np.uint64) -> np.uint64:
    size = end - start
    total = np.uint64(size) * _P64_1
    for index in range(8):
        total += _mix_16(data, start + 16 * index, 16 * index, seed)
    total = _avalanche(total)
    for index in range(8, size >> 4):
        total += _mix_16(data, start + 16 * index, 16 * (index - 8) + 3, seed)
    total += _mix_16(data, end - 16, 136 - 17, seed)
    return _avalanche(total)


@helper
def _of_long(data: NDArray[np.uint8], start: int, end: int, secret: NDArray[np.uint8]) -> np.uint64:
    # Eight accumulators as scalars: an array would be an allocation.
    a0, a1, a2, a3 = _P32_3, _P64_1, _P64_2, _P64_3
    a4, a5, a6, a7 = _P64_4, _P32_2, _P64_5, _P32_1
    stripes = (end - start - 1) // _STRIPE
    for number in range(stripes + 1):
        in_block = number % _STRIPES_A_BLOCK
        if number == stripes:  # The last stripe overlaps the one before.
            at, key = end - _STRIPE, SECRET_BYTES - _STRIPE - 7
        else:
            at, key = start + number * _STRIPE, 8 * in_block
        w0: np.uint64 = load_u64(data, at)
        w1: np.uint64 = load_u64(data, at + 8)
        w2, w3 = load_u64(data, at + 16), load_u64(data, at + 24)
        w4, w5 = load_u64(data, at + 32), load_u64(data, at + 40)
        w6, w7 = load_u64(data, at + 48), load_u64(data, at + 56)
        a0 += w1 + _product(w0 ^ load_u64(secret, key))
        a1 += w0 + _product(w1 ^ load_u64(secret, key + 8))
        a2 += w3 + _product(w2 ^ load_u64(secret, key + 16))
        a3 += w2 + _product(w3 ^ load_u64(secret, key + 24))
        a4 += w5 + _product(w4 ^ load_u64(secret, key + 32))
        a5 += w4 + _product(w5 ^ load_u64(secret, key + 40))
        a6 += w7 + _product(w6 ^ load_u64(secret, key + 48))
        a7 += w6 + _product(w7 ^ load_u64(secret, key + 56))
        if number < stripes and in_block == _STRIPES_A_BLOCK - 1:
            key = SECRET_BYTES - _STRIPE
            a0, a1 = _scrambled(a0, secret, key), _scrambled(a1, secret, key + 8)
            a2, a3 = _scrambled(a2, secret, key + 16), _scrambled(a3, secret, key + 24)
            a4, a5 = _scrambled(a4, secret, key + 32), _scrambled(a5, secret, key + 40)
            a6, a7 = _scrambled(a6, secret, key + 48), _scrambled(a7, secret, key + 56)
    total = np.uint64(end - start) * _P64_1
    total += _folded(a0 ^ load_u64(secret, 11), a1 ^ load_u64(secret, 19))
    total += _folded(a2 ^ load_u64(secret, 27), a3 ^ load_u64(secret, 35))
    total += _folded(a4 ^ load_u64(secret, 43), a5 ^ load_u64(secret, 51))
    total += _folded(a6 ^ load_u64(secret, 59), a7 ^ load_u64(secret, 67))
    return _avalanche(total)


@helper
def _mix_16(data: NDArray[np.uint8], at: int, key: int, seed: np.uint64) -> np.uint64:
    low = load_u64(data, at) ^ (load_u64(_SECRET, key) + seed)
    high = load_u64(data, at + 8) ^ (load_u64(_SECRET, key + 8) - seed)
    return _folded(low, high)


@helper
def _folded(a: np.uint64, b: np.uint64) -> np.uint64:
    return np.uint64(a * b ^ multiply_high(a, b))


@helper
def _product(word: np.uint64) -> np.uint64:
    return (word & _LOW) * (word >> _32)


@helper
def _scrambled(total: np.uint64, secret: NDArray[np.uint8], key: int) -> np.uint64:
    return (total ^ (total >> _47) ^ load_u64(secret, key)) * _P32_1


@helper
def _avalanche(word: np.uint64) -> np.uint64:
    word ^= word >> _37
    word *= _MX_1
    return word ^ (word >> _32)


@helper
def _avalanche_xxh64(word: np.uint64) -> np.uint64:
    word ^= word >> _33
    word *= _P64_2
    word ^= word >> _29
    word *= _P64_3
    return word ^ (word >> _32)
