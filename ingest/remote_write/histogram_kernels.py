"""Kernels over the Histogram messages of remote write: all messages of a request, in one pass for the sizes and one for
the columns. Both versions have the same fields, but for the start timestamp of version 2.

As in Prometheus, the last of the fields `count_int` and `count_float` says whether the counts are integers, and buckets
of the other kind are ignored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.remote_write.wire_kernels import FIXED64, GOOD, LENGTH, START, STOP, VARINT, get_field
from tsdb.codec.bits_kernels import shift_right, unzigzag
from tsdb.codec.jit import Array2, helper, request_kernel
from tsdb.codec.memory_kernels import as_int64, load_i64
from tsdb.codec.varint_kernels import get_varint

# Indices of `sizes`: buckets of all histograms, and words of all shapes.
BUCKETS, WORDS, SIZES = range(3)
# Columns of the table of numbers, of which floats are bits.
TS_MS, START_MS, COUNT, SUM, ZERO_COUNT, HINT, IS_INTEGER, FITS, NUMBERS = range(9)
# A shape in words: schema, bits of the zero threshold, number of positive spans, negative spans and custom bounds; then
# offset and length of each span, and the bits of each bound.
SCHEMA, ZERO_THRESHOLD, POSITIVE_SPANS, NEGATIVE_SPANS, BOUNDS, HEAD = range(6)
NO_SHAPE = -1
_INT32 = 0xFFFFFFFF
_MIX = 0x9E3779B97F4A7C15 - (1 << 64)


@helper
def get_span(data: NDArray[np.uint8], pos: int, end: int) -> tuple[int, int, int]:
    """(offset, length, GOOD or the position of the first bad byte) of a BucketSpan."""
    offset = 0
    length = 0
    while pos < end:
        number, wire, start, stop = get_field(data, pos, end)
        if stop < 0:
            return 0, 0, pos
        if wire == VARINT and (number == 1 or number == 2):
            value, _ = get_varint(data, start, stop)
            if number == 1:
                offset = unzigzag(value & _INT32)
            else:
                length = value & _INT32
        pos = stop
    return offset, length, GOOD


@helper
def put_counts(
    data: NDArray[np.uint8],
    wire: int,
    start: int,
    stop: int,
    is_integer: bool,
    total: int,
    buckets: NDArray[np.float64],
    at: int,
    fills: bool,
) -> tuple[int, int, int]:
    """Write the counts of one field, packed or not. total: the integer count before, of which fields have differences.

    Returns (new position in buckets, total, GOOD or the position of the first bad byte).
    """
    if not is_integer:
        if (wire != LENGTH and wire != FIXED64) or (stop - start) % 8:
            return at, total, start
        bits = as_int64(buckets)
        for pos in range(start, stop, 8):
            if fills:
                bits[at] = load_i64(data, pos)
            at += 1
        return at, total, GOOD
    if wire != LENGTH and wire != VARINT:
        return at, total, start
    pos = start
    while pos < stop:
        value, after = get_varint(data, pos, stop)
        if after < 0:
            return at, total, pos
        total += unzigzag(value)
        if fills:
            buckets[at] = total
        at += 1
        pos = after
    return at, total, GOOD


@helper
def unsigned_bits(value: int, one: NDArray[np.float64]) -> int:
    """Bits of the float64 of an int64 taken as unsigned. one: scratch, float64 (1,)."""
    # An odd half rounds as the whole number does.
    one[0] = value if value >= 0 else 2.0 * (shift_right(value, 1) | value & 1)
    return int(as_int64(one)[0])


@helper
def get_numbers(
    data: NDArray[np.uint8],
    pos: int,
    end: int,
    numbers: NDArray[np.int64],
    head: NDArray[np.int64],
    one: NDArray[np.float64],
) -> int:
    """Read the fields of a Histogram that occur once. head: int64 (HEAD,), zeros; gets schema, zero threshold, and the
    numbers of spans and bounds. one: as in `unsigned_bits`. Returns GOOD or the position of the first bad byte."""
    float_zeros = 0
    integer_zeros = 0
    numbers[:] = 0
    numbers[FITS] = 1
    while pos < end:
        number, wire, start, stop = get_field(data, pos, end)
        if stop < 0:
            return pos
        value = 0
        if wire == VARINT:
            value, _ = get_varint(data, start, stop)
        elif wire == FIXED64:
            value = load_i64(data, start)
        if number == 1 and wire == VARINT:
            numbers[COUNT] = unsigned_bits(value, one)
            numbers[IS_INTEGER] = 1
        elif number == 2 and wire == FIXED64:
            numbers[COUNT] = value
            numbers[IS_INTEGER] = 0
        elif number == 3 and wire == FIXED64:
            numbers[SUM] = value
        elif number == 4 and wire == VARINT:
            head[SCHEMA] = unzigzag(value & _INT32)
        elif number == 5 and wire == FIXED64:
            head[ZERO_THRESHOLD] = value
        elif number == 6 and wire == VARINT:
            integer_zeros = unsigned_bits(value, one)
            float_zeros = 0
        elif number == 7 and wire == FIXED64:
            float_zeros = value
            integer_zeros = 0
        elif number == 14 and wire == VARINT:
            numbers[HINT] = value if 0 <= value < 255 else 255
        elif number == 15 and wire == VARINT:
            numbers[TS_MS] = value
        elif number == 17 and wire == VARINT:
            numbers[START_MS] = value
        elif number == 8 or number == 11:
            if wire != LENGTH:
                return pos
            head[NEGATIVE_SPANS if number == 8 else POSITIVE_SPANS] += 1
        elif number == 16:
            if (wire != LENGTH and wire != FIXED64) or (stop - start) % 8:
                return pos
            head[BOUNDS] += (stop - start) // 8
        pos = stop
    numbers[ZERO_COUNT] = integer_zeros if numbers[IS_INTEGER] == 1 else float_zeros
    return GOOD


@helper
def put_side(
    data: NDArray[np.uint8],
    pos: int,
    end: int,
    is_integer: bool,
    spans_field: int,
    words: NDArray[np.int64],
    word: int,
    buckets: NDArray[np.float64],
    at: int,
    fills: bool,
) -> tuple[int, int, bool, int]:
    """Write the spans and counts of one side; spans_field: 11 of the positive, 8 of the negative side.

    Returns (new position in words, in buckets, whether spans and counts fit, GOOD or the position of a bad byte).
    """
    claimed = 0
    total = 0
    begin = at
    counts_field = spans_field + 1 if is_integer else spans_field + 2
    while pos < end:
        number, wire, start, stop = get_field(data, pos, end)
        if number == spans_field:
            offset, length, bad = get_span(data, start, stop)
            if bad != GOOD:
                return word, at, False, bad
            if fills:
                words[word] = offset
                words[word + 1] = length
            word += 2
            claimed += length
        elif number == counts_field:
            at, total, bad = put_counts(data, wire, start, stop, is_integer, total, buckets, at, fills)
            if bad != GOOD:
                return word, at, False, bad
        pos = stop
    return word, at, claimed == at - begin, GOOD


@helper
def put_bounds(data: NDArray[np.uint8], pos: int, end: int, words: NDArray[np.int64], word: int) -> int:
    """Write the bits of the custom bounds. Returns the new position."""
    while pos < end:
        number, _, start, stop = get_field(data, pos, end)
        if number == 16:
            for at in range(start, stop, 8):
                words[word] = load_i64(data, at)
                word += 1
        pos = stop
    return word


@helper
def shape_number(
    words: NDArray[np.int64],
    ends: NDArray[np.int64],
    shapes: int,
    end: int,
    slots: NDArray[np.int64],
    seed: int,
) -> int:
    """The number of the known shape with the words from ends[shapes] to `end`, or `shapes`, which is then known.

    ends[i], ends[i + 1]: the words of shape i. slots: a table by hash, a power of two and at most half full, NO_SHAPE
    where free.
    """
    begin = ends[shapes]
    hashed = seed
    for word in range(begin, end):
        hashed = (hashed ^ words[word]) * _MIX
        hashed ^= hashed >> 29
    slot = hashed & len(slots) - 1
    while slots[slot] != NO_SHAPE:
        known = slots[slot]
        first = ends[known]
        if ends[known + 1] - first == end - begin:
            different = 0
            for step in range(end - begin):
                different += words[first + step] != words[begin + step]
            if different == 0:
                return int(known)
        slot = slot + 1 & len(slots) - 1
    slots[slot] = shapes
    ends[shapes + 1] = end
    return shapes


@request_kernel
def histograms_kernel(
    data: NDArray[np.uint8],
    spans: Array2[np.int64],
    sizes: NDArray[np.int64],
    numbers: Array2[np.int64],
    shape_of: NDArray[np.int32],
    starts: NDArray[np.int64],
    buckets: NDArray[np.float64],
    words: NDArray[np.int64],
    ends: NDArray[np.int64],
    slots: NDArray[np.int64],
    seed: int,
) -> int:
    """Without slots, write the sizes of the n messages with these spans; with slots, fill the columns.

    spans: int64 (n, SPAN_COLUMNS), within data. sizes: int64 (SIZES,). numbers: int64 (n, NUMBERS). shape_of: int32
    (n,). starts: int64 (n + 1,): buckets of each, positive ones first. words, buckets: as long as `sizes` says. ends:
    int64 (n + 1,): the words of each shape, from 0. slots: int64, a power of two of at least 2 n, NO_SHAPE everywhere.
    A histogram whose spans and counts do not fit has FITS 0. Returns the number of shapes, or -2 - the position of the
    first bad byte.
    """
    fills = len(slots) > 0
    bucket = 0
    word = 0
    shapes = 0
    head = np.zeros(HEAD, np.int64)
    found = np.zeros(NUMBERS, np.int64)
    one = np.zeros(1)
    for row in range(len(spans)):
        start = spans[row, START]
        stop = spans[row, STOP]
        head[:] = 0
        bad = get_numbers(data, start, stop, found, head, one)
        if bad != GOOD:
            return -2 - bad
        is_integer = found[IS_INTEGER] == 1
        if fills:
            for step in range(HEAD):
                words[word + step] = head[step]
            starts[row] = bucket
        first = word
        word += HEAD
        word, bucket, positive_fits, bad = put_side(
            data, start, stop, is_integer, 11, words, word, buckets, bucket, fills
        )
        if bad != GOOD:
            return -2 - bad
        word, bucket, negative_fits, bad = put_side(
            data, start, stop, is_integer, 8, words, word, buckets, bucket, fills
        )
        if bad != GOOD:
            return -2 - bad
        if not fills:
            word += head[BOUNDS]
            continue
        word = put_bounds(data, start, stop, words, word)
        found[FITS] = 1 if positive_fits and negative_fits else 0
        for column in range(NUMBERS):
            numbers[row, column] = found[column]
        number = shape_number(words, ends, shapes, word, slots, seed)
        shape_of[row] = number
        if number == shapes:
            shapes += 1
        else:
            word = first
        starts[row + 1] = bucket
    sizes[BUCKETS] = bucket
    sizes[WORDS] = word
    return shapes
