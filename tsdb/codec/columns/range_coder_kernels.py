"""Range coder with an adaptive model: symbols of a small alphabet at close to their entropy, with no table to store.

Layout: docs/formats/columns.md, "Entropy". The coder is Martin's (1979) with 32-bit range and byte-wise renormalising;
a carry runs back through the bytes already written. The model counts: each symbol starts with START and gains GAIN when
it occurs, all halve when their sum passes LIMIT, so old habits fade. Short columns profit most: a stored table of
frequencies would cost more than it saves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import divide_u32
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import store_i64

START = 10
GAIN = 32
LIMIT = 3072  # About 96 symbols; well below RANGE_MIN, so that no share is rounded to nothing.
RANGE_MIN = 1 << 24
WORD = 1 << 32
# Symbols of a wide alphabet lie near its ends, so a decoder searches from the nearer end: symbols of noise take 15 ns
# in place of 52. A narrow one is searched from below: choosing an end costs what it saves.
TWO_ENDED_FROM = 32  # symbols
SHORT_TAIL_FROM = 1 << 25  # an interval this wide holds a whole multiple of 2^24 with all that may follow it


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
