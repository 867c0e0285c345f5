"""Kernels over label sets: their hashes as sent, and their canonical form with ids, pack and partition.

Python twins: tsdb.model.labels.normalize_labels, PlacementRule.place, partition_of and source_hash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import trailing_zeros
from tsdb.codec.jit import helper, short_kernel
from tsdb.codec.memory_kernels import copy_bytes, load_u64
from tsdb.codec.murmur2_kernels import murmur2
from tsdb.codec.utf8_kernels import is_utf8
from tsdb.codec.xxh3_kernels import xxh3_64
from tsdb.model.labels import RESERVED as RESERVED_NAMES
from tsdb.model.placement import FAMILY_SUFFIXES

# The first problem of a label set. The order of the checks is that of normalize_labels.
VALID, EMPTY, MALFORMED, RESERVED, DUPLICATE, TOO_MANY, TOO_LONG = 0, 1, 2, 3, 4, 5, 6
SPAN = 3  # Columns of a label's span: start of its name, start of its value, end of the value.

_SEPARATOR = np.uint8(0xFF)
_NAME = np.frombuffer(b"__name__", np.uint8)
_RESERVED = np.frombuffer(b"".join(RESERVED_NAMES), np.uint8)
_RESERVED_STARTS = np.cumsum([0, *map(len, RESERVED_NAMES)])
_SUFFIXES = np.frombuffer(b"".join(FAMILY_SUFFIXES), np.uint8)
_SUFFIX_STARTS = np.cumsum([0, *map(len, FAMILY_SUFFIXES)])
_POSITIVE = np.uint64(0x7FFFFFFF)
_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_ONES, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_LOW_BITS = ~_HIGH_BITS


@short_kernel
def hash_rows_kernel(
    labels: NDArray[np.uint8],
    label_starts: NDArray[np.int64],
    plain_secret: NDArray[np.uint8],
    seed: np.uint64,
    seeded_secret: NDArray[np.uint8],
    series_id: NDArray[np.uint64],
    check: NDArray[np.uint64],
) -> None:
    """xxh3-64 of the bytes of each row, without seed and with it."""
    for row in range(series_id.size):
        start, end = label_starts[row], label_starts[row + 1]
        series_id[row] = xxh3_64(labels, start, end, np.uint64(0), plain_secret)
        check[row] = xxh3_64(labels, start, end, seed, seeded_secret)


@short_kernel
def normalize_kernel(
    labels: NDArray[np.uint8],
    label_starts: NDArray[np.int64],
    which: NDArray[np.int64],
    bounds: NDArray[np.int64],
    rule: NDArray[np.uint8],
    rule_starts: NDArray[np.int64],
    partitions: int,
    plain_secret: NDArray[np.uint8],
    seed: np.uint64,
    seeded_secret: NDArray[np.uint8],
    spans: NDArray[np.int64],
    scratch: NDArray[np.uint8],
    out: NDArray[np.uint8],
    out_starts: NDArray[np.int64],
    code: NDArray[np.uint8],
    series_id: NDArray[np.uint64],
    check: NDArray[np.uint64],
    pack_id: NDArray[np.uint64],
    partition: NDArray[np.int64],
    source: NDArray[np.uint32],
) -> None:
    """Check the rows `which` and write their canonical labels to out[out_starts[i]:out_starts[i + 1]].

    bounds: the most labels, and the most bytes of a name, of a value and of all labels. rule: placement labels, joined.
    spans: scratch of SPAN x labels; scratch: memory for the placement, which is at most the value of each placement
    label and the family.
    """
    end = 0
    out_starts[0] = 0
    for index in range(which.size):
        row = which[index]
        first, last = label_starts[row], label_starts[row + 1]
        count = _labels(labels, first, last, bounds, spans)
        code[index] = -count if count < 0 else _problem(labels, spans, count, bounds)
        if code[index] == VALID:
            start, end = end, _write(labels, spans, count, out, end)
            series_id[index] = xxh3_64(out, start, end, np.uint64(0), plain_secret)
            check[index] = xxh3_64(out, start, end, seed, seeded_secret)
            length = _placement(labels, spans, count, rule, rule_starts, scratch)
            partition[index] = np.int64(murmur2(scratch, 0, length) & _POSITIVE) % partitions
            source[index] = np.uint32(xxh3_64(scratch, 0, length, seed, seeded_secret) >> _32)
            scratch[length] = _SEPARATOR
            length = _family(labels, spans, count, scratch, length + 1)
            pack_id[index] = xxh3_64(scratch, 0, length, np.uint64(0), plain_secret)
        out_starts[index + 1] = end


@helper
def _labels(
    labels: NDArray[np.uint8], first: int, last: int, bounds: NDArray[np.int64], spans: NDArray[np.int64]
) -> int:
    """Fill the spans of names and values in the order of the names; returns their number, or the negative code."""
    if first == last:
        return -EMPTY
    if last - first > bounds[3]:
        return -TOO_LONG
    separators = _separators(labels, first, last)
    if separators % 2 == 0:
        return -MALFORMED
    count = separators // 2 + 1
    if count > bounds[0]:
        return -TOO_MANY
    at = first
    for label in range(count):
        name = at
        value = _next_separator(labels, at, last) + 1
        at = _next_separator(labels, value, last)
        place = label
        while place and _is_after(labels, spans, place - 1, name, value, at):
            for part in range(SPAN):
                spans[place * SPAN + part] = spans[(place - 1) * SPAN + part]
            place -= 1
        spans[place * SPAN], spans[place * SPAN + 1], spans[place * SPAN + 2] = name, value, at
        at += 1
    return count


@helper
def _separators(labels: NDArray[np.uint8], at: int, end: int) -> int:
    """Number of bytes 0xFF."""
    count = 0
    while at + 8 <= end:
        marks = _marks(load_u64(labels, at))
        while marks != _0:
            marks &= marks - _1
            count += 1
        at += 8
    for position in range(at, end):
        count += labels[position] == _SEPARATOR
    return count


@helper
def _next_separator(labels: NDArray[np.uint8], at: int, end: int) -> int:
    """Position of the first byte 0xFF, or end."""
    while at + 8 <= end:
        marks = _marks(load_u64(labels, at))
        if marks != _0:
            return at + (int(trailing_zeros(np.int64(marks))) >> 3)
        at += 8
    while at < end and labels[at] != _SEPARATOR:
        at += 1
    return at


@helper
def _marks(word: np.uint64) -> np.uint64:
    """The high bit of each byte 0xFF, and no other bit."""
    # Adding 1 to the low seven bits carries into the high bit only if all of them are set.
    return np.uint64(((word & _LOW_BITS) + _ONES) & word & _HIGH_BITS)


@helper
def _is_after(labels: NDArray[np.uint8], spans: NDArray[np.int64], label: int, name: int, value: int, end: int) -> bool:
    """Whether a label of `spans` comes after the given one, by name and then by value."""
    held, held_value, held_end = spans[label * SPAN], spans[label * SPAN + 1], spans[label * SPAN + 2]
    order = _compare(labels, held, held_value - 1, name, value - 1)
    if order == 0:
        order = _compare(labels, held_value, held_end, value, end)
    return order > 0


@helper
def _compare(labels: NDArray[np.uint8], a: int, a_end: int, b: int, b_end: int) -> int:
    size = min(a_end - a, b_end - b)
    for index in range(size):
        if labels[a + index] != labels[b + index]:
            return 1 if labels[a + index] > labels[b + index] else -1
    return int((a_end - a) - (b_end - b))


@helper
def _equals(labels: NDArray[np.uint8], start: int, end: int, text: NDArray[np.uint8], begin: int, stop: int) -> bool:
    size = end - start
    if size != stop - begin:
        return False
    same = 0
    while same < size and labels[start + same] == text[begin + same]:
        same += 1
    return same == size


@helper
def _problem(labels: NDArray[np.uint8], spans: NDArray[np.int64], count: int, bounds: NDArray[np.int64]) -> int:
    """The first problem of sorted labels."""
    named = False
    for label in range(count):
        name, value, end = spans[label * SPAN], spans[label * SPAN + 1], spans[label * SPAN + 2]
        name_end = value - 1
        is_name = _equals(labels, name, name_end, _NAME, 0, _NAME.size)
        named = named or is_name
        if name == name_end or (is_name and value == end):
            return MALFORMED
        if name_end - name > bounds[1] or end - value > bounds[2]:
            return TOO_LONG
        for reserved in range(_RESERVED_STARTS.size - 1):
            begin, stop = _RESERVED_STARTS[reserved], _RESERVED_STARTS[reserved + 1]
            if _equals(labels, name, name_end, _RESERVED, begin, stop):
                return RESERVED
        if not (is_utf8(labels, name, name_end) and is_utf8(labels, value, end)):
            return MALFORMED
        if label:
            before = (label - 1) * SPAN
            if _compare(labels, spans[before], spans[before + 1] - 1, name, name_end) == 0:
                return DUPLICATE
    return VALID if named else MALFORMED


@helper
def _write(labels: NDArray[np.uint8], spans: NDArray[np.int64], count: int, out: NDArray[np.uint8], at: int) -> int:
    """Join the labels at out[at:]; returns the end."""
    for label in range(count):
        if label:
            out[at] = _SEPARATOR
            at += 1
        size = spans[label * SPAN + 2] - spans[label * SPAN]
        copy_bytes(out, at, labels, spans[label * SPAN], size)
        at += size
    return at


@helper
def _placement(
    labels: NDArray[np.uint8],
    spans: NDArray[np.int64],
    count: int,
    rule: NDArray[np.uint8],
    rule_starts: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> int:
    """Values of the placement labels, joined; the metric family when all are empty or absent. Returns the length."""
    at = 0
    for wanted in range(rule_starts.size - 1):
        if wanted:
            out[at] = _SEPARATOR
            at += 1
        for label in range(count):
            name, value, end = spans[label * SPAN], spans[label * SPAN + 1], spans[label * SPAN + 2]
            if _equals(labels, name, value - 1, rule, rule_starts[wanted], rule_starts[wanted + 1]):
                copy_bytes(out, at, labels, value, end - value)
                at += end - value
    if at > max(0, rule_starts.size - 2):
        return at
    return _family(labels, spans, count, out, 0)


@helper
def _family(labels: NDArray[np.uint8], spans: NDArray[np.int64], count: int, out: NDArray[np.uint8], at: int) -> int:
    """Write the metric name without one suffix to out[at:]; returns the end."""
    for label in range(count):
        name, value, end = spans[label * SPAN], spans[label * SPAN + 1], spans[label * SPAN + 2]
        if not _equals(labels, name, value - 1, _NAME, 0, _NAME.size):
            continue
        for suffix in range(_SUFFIX_STARTS.size - 1):
            begin, stop = _SUFFIX_STARTS[suffix], _SUFFIX_STARTS[suffix + 1]
            size = stop - begin
            if end - value > size and _equals(labels, end - size, end, _SUFFIXES, begin, stop):
                end -= size
                break
        copy_bytes(out, at, labels, value, end - value)
        return int(at + end - value)
    return at
