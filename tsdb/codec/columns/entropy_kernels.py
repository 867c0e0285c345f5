"""Entropy packing: the range coder encodes the sign and bit length of each residual; its lower bits are stored
unchanged.

Layout: docs/formats/columns.md, "Entropy". Lower bits of measured noise do not compress; which power of two a change
falls into does. After pcodec (Loncaric 2025), with signed powers of two in place of fitted bins.

A range coder with an adaptive model writes symbols of a small alphabet at close to their entropy, with no table to
store.

Layout: docs/formats/columns.md, "Entropy". The coder is Martin's (1979) with 32-bit range and byte-wise renormalising;
a carry runs back through the bytes already written. The model counts: each symbol starts with START and gains GAIN when
it occurs, all halve when their sum passes LIMIT, so old habits fade. Short columns profit most: a stored table of
frequencies would cost more than it saves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import bit_length, divide_u32, log2_q16, shift_right, unzigzag, zigzag
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_i64, store_i64

START = 10
GAIN = 32
LIMIT = 3072  # About 96 symbols; well below RANGE_MIN, so that no share is rounded to nothing.
RANGE_MIN = 1 << 24
WORD = 1 << 32
# Symbols of a wide alphabet lie near its ends, so a decoder searches from the nearer end: symbols of noise take 15 ns
# in place of 52. A narrow one is searched from below: choosing an end costs what it saves.
TWO_ENDED_FROM = 32  # symbols
SHORT_TAIL_FROM = 1 << 25  # An interval of this width contains a multiple of 2^24, whatever bytes follow.

# Class 64 - b, 64 or 64 + b for a negative, zero or positive residual of bit length b. Only -2^63 has 64 bits.
CLASSES = 128
ZERO_CLASS = 64
# Edges, the lowest and highest class that occur: one byte when no residual is negative, as in half of all columns.
RISING_MAX = 63  # edge bytes up to here: the lowest class is that of 0, the highest as far above
BOTH_EDGES = 64  # + lowest class, then another byte: highest class
EDGES_MAX = 2


@helper
def _learn(counts: NDArray[np.int64], symbol: int, total: int) -> int:
    """Count a symbol. Returns the new sum of counts."""
    counts[symbol] += GAIN
    total += GAIN
    if total <= LIMIT:
        return total
    total = 0
    for each in range(len(counts)):
        counts[each] -= counts[each] >> 1
        total += counts[each]
    return total


@helper
def encode_symbols(
    symbols: NDArray[np.int64], n: int, alphabet: int, out: NDArray[np.uint8], pos: int, end: int
) -> int:
    """Write symbols[:n], each in [0, alphabet); the new position, or -1 if that would pass end."""
    counts = np.full(alphabet, START)
    total = alphabet * START
    low, width, origin = 0, WORD - 1, pos
    for index in range(n):
        symbol = symbols[index]
        below = 0
        for smaller in range(symbol):
            below += counts[smaller]
        share: int = divide_u32(width, total)
        low += share * below
        width = share * counts[symbol]
        total = _learn(counts, symbol, total)
        if low >= WORD:
            low -= WORD
            _carry(out, pos, origin)
        while width < RANGE_MIN:
            if pos >= end:
                return -1
            out[pos] = np.uint8(low >> 24)
            pos += 1
            low = (low << 8) & (WORD - 1)
            width <<= 8
    # The lowest multiple of 2^24 or 2^16 at or above low: whatever bytes follow, the value stays below low + width.
    tail = _tail(width)
    if end - pos < tail:
        return -1
    low += (1 << (32 - 8 * tail)) - 1
    if low >= WORD:
        low -= WORD
        _carry(out, pos, origin)
    for _ in range(tail):
        out[pos] = np.uint8(low >> 24)
        low = (low << 8) & (WORD - 1)
        pos += 1
    return pos


@helper
def _tail(width: int) -> int:
    """Number of final bytes that a decoder needs, whatever bytes follow them."""
    return 1 if width >= SHORT_TAIL_FROM else 2


@helper
def _carry(out: NDArray[np.uint8], pos: int, origin: int) -> None:
    pos -= 1
    while pos > origin and out[pos] == 255:
        out[pos] = 0
        pos -= 1
    out[pos] += 1


@helper
def decode_symbols(
    data: NDArray[np.uint8], pos: int, end: int, n: int, alphabet: int, target: NDArray[np.int64], at: int
) -> int:
    """Read n symbols into target[at : at + n] as int64. Returns the new position, negative when it lies past end.

    Any bytes decode to some symbols in [0, alphabet); missing bytes count as zeros until the caller checks the
    position.

    """
    counts = np.full(alphabet, START)
    total = alphabet * START
    split = alphabet >> 1 if alphabet >= TWO_ENDED_FROM else alphabet
    lower = split * START  # sum of counts[:split]
    width, code = WORD - 1, 0
    for _ in range(4):
        code = code << 8 | _byte(data, pos, end)
        pos += 1
    for index in range(at, at + n):
        share: int = divide_u32(width, total)
        if code < share * lower:
            symbol, below = _from_first(counts, share, code)
        else:
            symbol, below = _from_last(counts, share, code, total)
        code -= below
        width = share * counts[symbol]
        # Behind the last symbol lies the remainder of the division. A valid stream never points there.
        if code >= width:
            return -1
        store_i64(target, index * 8, symbol)
        learned = _learn(counts, symbol, total)
        if learned < total:
            lower = counts[:split].sum()
        elif symbol < split:
            lower += GAIN
        total = learned
        while width < RANGE_MIN:
            code = code << 8 | _byte(data, pos, end)
            pos += 1
            width <<= 8
    pos -= 4 - _tail(width)
    return pos if pos <= end else -1


@helper
def _from_first(counts: NDArray[np.int64], share: int, code: int) -> tuple[int, int]:
    """(symbol that code lies in, where it begins); code lies in one of them."""
    symbol, below = 0, 0
    upper = share * counts[0]
    while upper <= code:
        symbol += 1
        below = upper
        upper += share * counts[symbol]
    return symbol, below


@helper
def _from_last(counts: NDArray[np.int64], share: int, code: int, total: int) -> tuple[int, int]:
    """Does what _from_first does, from the other end. A code beyond all symbols belongs to the last one."""
    symbol = len(counts) - 1
    below = share * (total - counts[symbol])
    while below > code:
        symbol -= 1
        below -= share * counts[symbol]
    return symbol, below


@helper
def _byte(data: NDArray[np.uint8], pos: int, end: int) -> int:
    return int(data[pos]) if pos < end else 0


@helper
def class_of(residual: int) -> int:
    """Class of a zigzag residual, in [0, CLASSES)."""
    signed = unzigzag(residual)
    length = bit_length(abs(signed))
    return ZERO_CLASS - length if signed < 0 else ZERO_CLASS + length


@helper
def entropy_size(residuals: NDArray[np.int64], count: int) -> int:
    """About the bytes that write_entropy takes: bits under the final frequencies, and what learning them costs."""
    histogram = np.zeros(CLASSES, np.int64)
    lower_bits = 0
    for index in range(count):
        symbol = class_of(residuals[index])
        histogram[symbol] += 1
        lower_bits += max(abs(symbol - ZERO_CLASS) - 1, 0)
    bits = count * log2_q16(count)
    for symbol in range(CLASSES):
        if histogram[symbol]:
            # Half a log2(count) is what an adaptive model pays to learn one frequency.
            bits += log2_q16(count) >> 1
            bits -= histogram[symbol] * log2_q16(histogram[symbol])
    return ((bits >> 16) + lower_bits) // 8 + EDGES_MAX + 2


@helper
def write_entropy(residuals: NDArray[np.int64], count: int, out: NDArray[np.uint8], pos: int, end: int) -> int:
    """Write zigzag residuals[:count], count >= 1; the new position, or -1 if that would pass end."""
    symbols = np.empty(count, np.int64)
    lowest, highest = CLASSES, 0
    for index in range(count):
        symbols[index] = class_of(residuals[index])
        lowest, highest = min(lowest, symbols[index]), max(highest, symbols[index])
    if end - pos < EDGES_MAX:
        return -1
    if lowest == ZERO_CLASS and highest - ZERO_CLASS <= RISING_MAX:
        out[pos] = np.uint8(highest - ZERO_CLASS)
        pos += 1
    else:
        out[pos], out[pos + 1] = np.uint8(BOTH_EDGES + lowest), np.uint8(highest)
        pos += 2
    symbols -= lowest
    pos = encode_symbols(symbols, count, highest - lowest + 1, out, pos, end)
    return pos if pos < 0 else _write_lower_bits(residuals, symbols, count, lowest, out, pos, end)


@helper
def _write_lower_bits(
    residuals: NDArray[np.int64],
    symbols: NDArray[np.int64],
    count: int,
    lowest: int,
    out: NDArray[np.uint8],
    pos: int,
    end: int,
) -> int:
    held = filled = 0
    for index in range(count):
        width = max(abs(symbols[index] + lowest - ZERO_CLASS) - 1, 0)
        bits = abs(unzigzag(residuals[index]))
        # Bits are added in two parts, so that waiting bits and added bits fit a word.
        for part in (min(width, 32), max(width - 32, 0)):
            held |= (bits & ((1 << part) - 1)) << filled
            bits >>= 32
            filled += part
            while filled >= 8:
                if pos >= end:
                    return -1
                out[pos] = np.uint8(held & 255)
                pos += 1
                held >>= 8
                filled -= 8
    if filled:
        if pos >= end:
            return -1
        out[pos] = np.uint8(held)
        pos += 1
    return pos


@helper
def read_entropy(data: NDArray[np.uint8], pos: int, end: int, count: int, target: NDArray[np.int64], at: int) -> int:
    """Read count zigzag residuals into target[at : at + count]; the new position, negative for bytes that are not such
    residuals.
    """
    if pos >= end:
        return -1
    lowest, highest = ZERO_CLASS, ZERO_CLASS + int(data[pos])
    pos += 1
    if highest > ZERO_CLASS + RISING_MAX:
        if pos >= end:
            return -1
        lowest, highest = highest - ZERO_CLASS - BOTH_EDGES, int(data[pos])
        pos += 1
    if highest < lowest or highest >= CLASSES:
        return -1
    pos = decode_symbols(data, pos, end, count, highest - lowest + 1, target, at)
    if pos < 0:
        return pos
    bit, bits = pos * 8, end * 8
    for index in range(at, at + count):
        signed = load_i64(target, index * 8) + lowest - ZERO_CLASS
        width = max(abs(signed) - 1, 0)
        if width > bits - bit:
            return -1
        magnitude = _bits_at(data, bit, end, width)
        if signed:
            magnitude |= 1 << width
        bit += width
        store_i64(target, index * 8, zigzag(-magnitude if signed < 0 else magnitude))
    return (bit + 7) >> 3


@helper
def _bits_at(data: NDArray[np.uint8], bit: int, end: int, width: int) -> int:
    """Read width <= 63 bits from an absolute bit position; the bits lie before end."""
    at, shift = bit >> 3, bit & 7
    if end - at > 8:
        # A wide value may reach into a ninth byte. Two shifts, because one by 64 is undefined.
        value = shift_right(load_i64(data, at), shift) | (int(data[at + 8]) << 1) << (63 - shift)
        return int(value & ((1 << width) - 1))
    value = got = 0
    while got < width:
        at = bit + got
        value |= (int(data[at >> 3]) >> (at & 7)) << got
        got += 8 - (at & 7)
    return value & ((1 << width) - 1)
