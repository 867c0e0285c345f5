"""Kernel that decodes line protocol: one pass over the bytes, one row a numeric field. Twin: tests/support/oracles.

A line is refused as a whole: its rows are taken back, and the kernel goes on behind the next line end. When the output
is full, the kernel returns with its state at the start of the line, so that the caller enlarges the output and calls it
again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.influx.number_kernels import BAD_NUMBER, OUT_OF_RANGE, UNDECIDED, parse_float, parse_int64, parse_integer
from ingest.influx.text_kernels import (
    FIELD,
    MEASUREMENT,
    TAG_NAME,
    TAG_VALUE,
    at_line_end,
    bad_utf8,
    blank_end,
    copy_bytes,
    copy_text,
    line_ends,
    name_end,
    next_line,
    same_bytes,
    spaces_end,
    string_end,
    value_end,
)
from tsdb.codec.jit import Array2, helper, request_kernel

LINE_BYTES_MAX = 256 * 1024  # VictoriaMetrics has the same limit. It bounds the search for the end of a string.
# The shortest form of a number has at most 24 bytes. Exact forms of up to 1,077 bytes are not sent.
NUMBER_BYTES_MAX = 1024

# Results of the kernel.
DONE, LABELS_FULL, ROWS_FULL = 0, -1, -2
# Reasons for the refusal of a line, which its steps return. 0 means no refusal.
(
    MISSING_MEASUREMENT, BAD_TAG, DUPLICATE_TAG, TOO_MANY_TAGS, LABELS_TOO_LONG, MISSING_FIELDS, BAD_FIELD,
    NUMBER_MALFORMED, NUMBER_OUT_OF_RANGE, UNCLOSED_STRING, BAD_TIMESTAMP, TIMESTAMP_OUT_OF_RANGE, NOT_UTF8,
    LINE_TOO_LONG,
) = range(1, 15)  # fmt: skip
REASONS = 15

# Fields of `state`. LINE: the number of the line, from 1. AT: the position at which a step ended, or of the byte that
# it refuses.
POSITION, LINE, AT, ROWS, LABELS, STRINGS, LISTED, PREFIX, TAGS, NAMES, STAMP = range(11)
STATES = 11
# Fields of `rules`.
NOW_MS, MULTIPLY, DIVIDE, TAGS_MAX, SANITISED, VALUE_DROPPED, CHECK_UTF8 = range(7)
RULES = 7
NAME_BYTES = 9  # `__name__ 0xFF`, with which the caller begins the prefix.

_QUOTE, _HASH, _COMMA, _EQUALS, _UNDERSCORE, _SEPARATOR = 34, 35, 44, 61, 95, 0xFF
_LOWER_I, _LOWER_U = 105, 117
_INT64_MAX = (1 << 63) - 1
_TRUE, _FALSE = np.uint64(0x3FF0_0000_0000_0000), np.uint64(0)
_TEXTS = np.frombuffer(b"truefalsevalue", np.uint8)
_FALSE_TEXT, _VALUE_TEXT = 4, 9


@request_kernel
def decode_lines_kernel(
    data: NDArray[np.uint8],
    rules: NDArray[np.int64],
    extra: NDArray[np.uint8],
    extra_name: int,
    prefix: NDArray[np.uint8],
    tags: NDArray[np.uint8],
    names: NDArray[np.int64],
    labels: NDArray[np.uint8],
    label_ends: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    bits: NDArray[np.uint64],
    undecided: NDArray[np.int64],
    lines: NDArray[np.int64],
    refused: NDArray[np.int64],
    listed: Array2[np.int64],
    state: NDArray[np.int64],
) -> int:
    """Decode lines from state[POSITION] on: DONE, LABELS_FULL or ROWS_FULL.

    extra: `name 0xFF value` of a label for all lines without a tag of that name, name of extra_name bytes; may be
    empty. prefix, tags, names: scratch; prefix and tags are as long as the labels of a line may be; prefix begins with
    `__name__ 0xFF`. Row r of the output has the labels that end at label_ends[r], ts_ms[r], the float64 bits[r], and
    lines[r]; undecided[r] is the byte where a number begins whose bits float() has to give, else -1. refused: lines by
    reason. listed: (n, 4), the first refused lines: number, reason, first byte, refused byte.
    """
    end = data.size
    while state[POSITION] < end:
        start = state[POSITION]
        rows, used, strings = state[ROWS], state[LABELS], state[STRINGS]
        state[AT] = blank_end(data, start, end)
        code = 0
        if data[min(state[AT], end - 1)] == _HASH or at_line_end(data, state[AT], end):
            state[AT] = next_line(data, state[AT], end)
        else:
            code = _series(data, rules, extra, extra_name, prefix, tags, names, state)
            if code == 0:
                code = _fields(data, rules, prefix, tags, labels, label_ends, bits, undecided, state)
            if code == 0:
                code = _timestamp(data, rules, state)
            if code == 0:
                code = _whole_line(data, rules, state)
            if code < 0:
                state[ROWS], state[LABELS], state[STRINGS] = rows, used, strings
                return code
            if code > 0:
                state[ROWS], state[LABELS], state[STRINGS] = rows, used, strings
                _refuse(data, code, start, refused, listed, state)
            for row in range(rows, state[ROWS]):
                ts_ms[row] = state[STAMP]
                lines[row] = state[LINE]
            state[AT] = next_line(data, state[AT], end)
        state[POSITION] = state[AT]
        state[LINE] += line_ends(data, start, state[AT])
    return DONE


@helper
def _series(
    data: NDArray[np.uint8],
    rules: NDArray[np.int64],
    extra: NDArray[np.uint8],
    extra_name: int,
    prefix: NDArray[np.uint8],
    tags: NDArray[np.uint8],
    names: NDArray[np.int64],
    state: NDArray[np.int64],
) -> int:
    """Write the measurement to prefix, and 0xFF name 0xFF value of each tag to tags."""
    p, end = state[AT], data.size
    stop = name_end(data, p, end, False)
    if stop == p:
        return MISSING_MEASUREMENT
    at = copy_text(data, p, stop, MEASUREMENT, rules[SANITISED] != 0, prefix, NAME_BYTES)
    if at < 0:
        return LABELS_TOO_LONG
    state[PREFIX], state[TAGS], state[NAMES], state[AT] = at, 0, 0, stop
    while state[AT] < end and data[state[AT]] == _COMMA:
        code = _tag(data, rules, tags, names, state)
        if code:
            return code
    if extra_name and not _has_name(tags, names, state[NAMES], extra, 0, extra_name):
        if state[TAGS] >= tags.size:
            return LABELS_TOO_LONG
        tags[state[TAGS]] = _SEPARATOR
        state[TAGS] = copy_bytes(extra, 0, extra.size, tags, state[TAGS] + 1)
    return LABELS_TOO_LONG if state[TAGS] < 0 else 0


@helper
def _tag(
    data: NDArray[np.uint8],
    rules: NDArray[np.int64],
    tags: NDArray[np.uint8],
    names: NDArray[np.int64],
    state: NDArray[np.int64],
) -> int:
    """The tag behind the comma at state[AT]. A tag without a value is left out: for a label that is the same."""
    end = data.size
    start = state[AT] + 1
    equals = name_end(data, start, end, True)
    state[AT] = equals
    if equals == start or equals >= end or data[equals] != _EQUALS:
        return BAD_TAG
    stop = name_end(data, equals + 1, end, True)
    state[AT] = stop
    if stop < end and data[stop] == _EQUALS:
        return BAD_TAG
    if stop == equals + 1:
        return 0
    count, first = state[NAMES], state[TAGS] + 1
    if count >= rules[TAGS_MAX]:
        state[AT] = start
        return TOO_MANY_TAGS
    name = copy_text(data, start, equals, TAG_NAME, rules[SANITISED] != 0, tags, first) if first < tags.size else -1
    at = copy_text(data, equals + 1, stop, TAG_VALUE, False, tags, name + 1) if 0 <= name < tags.size else -1
    if at < 0:
        state[AT] = start
        return LABELS_TOO_LONG
    if _has_name(tags, names, count, tags, first, name):
        state[AT] = start
        return DUPLICATE_TAG
    tags[first - 1] = _SEPARATOR
    tags[name] = _SEPARATOR
    names[2 * count], names[2 * count + 1] = first, name
    state[NAMES], state[TAGS] = count + 1, at
    return 0


@helper
def _has_name(
    tags: NDArray[np.uint8], names: NDArray[np.int64], count: int, other: NDArray[np.uint8], start: int, end: int
) -> bool:
    """Whether one of the first `count` names is other[start:end)."""
    index = 0
    while index < count and not same_bytes(tags, names[2 * index], names[2 * index + 1], other, start, end):
        index += 1
    return index < count


@helper
def _fields(
    data: NDArray[np.uint8],
    rules: NDArray[np.int64],
    prefix: NDArray[np.uint8],
    tags: NDArray[np.uint8],
    labels: NDArray[np.uint8],
    label_ends: NDArray[np.int64],
    bits: NDArray[np.uint64],
    undecided: NDArray[np.int64],
    state: NDArray[np.int64],
) -> int:
    """One row a field with a number or boolean; strings are counted."""
    end = data.size
    p = spaces_end(data, state[AT], end)
    state[AT] = p
    if at_line_end(data, p, end):
        return MISSING_FIELDS
    string_limit = min(end, state[POSITION] + LINE_BYTES_MAX)
    while True:
        equals = name_end(data, p, end, True)
        state[AT] = equals
        if equals - state[POSITION] > LINE_BYTES_MAX:
            return LINE_TOO_LONG
        if equals == p or equals >= end or data[equals] != _EQUALS:
            return BAD_FIELD
        state[AT] = equals + 1
        if equals + 1 < end and data[equals + 1] == _QUOTE:
            stop = string_end(data, equals + 2, string_limit) + 1
            if stop == 0:
                return UNCLOSED_STRING
            state[STRINGS] += 1
        else:
            stop = value_end(data, equals + 1, end)
            if state[ROWS] >= bits.size:
                return ROWS_FULL
            code = _value(data, equals + 1, stop, bits, undecided, state[ROWS])
            if code:
                return code
            code = _labels(data, p, equals, rules, prefix, tags, labels, label_ends, state)
            if code:
                return code
        state[AT] = stop
        if stop >= end or data[stop] != _COMMA:
            return 0
        p = stop + 1


@helper
def _labels(
    data: NDArray[np.uint8],
    start: int,
    end: int,
    rules: NDArray[np.int64],
    prefix: NDArray[np.uint8],
    tags: NDArray[np.uint8],
    labels: NDArray[np.uint8],
    label_ends: NDArray[np.int64],
    state: NDArray[np.int64],
) -> int:
    """Append the label set of the field data[start:end)."""
    at = copy_bytes(prefix, 0, state[PREFIX], labels, state[LABELS])
    if at >= 0 and not (rules[VALUE_DROPPED] != 0 and _is_value(data, start, end)):
        if at >= labels.size:
            return LABELS_FULL
        labels[at] = _UNDERSCORE
        at = copy_text(data, start, end, FIELD, rules[SANITISED] != 0, labels, at + 1)
    if at >= 0:
        at = copy_bytes(tags, 0, state[TAGS], labels, at)
    if at < 0:
        return LABELS_FULL
    label_ends[state[ROWS]] = at
    state[LABELS] = at
    state[ROWS] += 1
    return 0


@helper
def _is_value(data: NDArray[np.uint8], start: int, end: int) -> bool:
    """Whether the field's key is `value`."""
    index = 0
    while start + index < end and index < 5 and data[start + index] == _TEXTS[_VALUE_TEXT + index]:
        index += 1
    return index == 5 and start + index == end


@helper
def _value(
    data: NDArray[np.uint8],
    start: int,
    end: int,
    bits: NDArray[np.uint64],
    undecided: NDArray[np.int64],
    row: int,
) -> int:
    """The number or boolean data[start:end)."""
    undecided[row] = -1
    size = end - start
    if size == 0:
        return BAD_FIELD
    if size > NUMBER_BYTES_MAX:
        return NUMBER_MALFORMED
    last = data[end - 1]
    if last in (_LOWER_I, _LOWER_U):
        code = parse_integer(data, start, end - 1, last == _LOWER_I, bits, row)
    else:
        first = data[start] | 32
        if first == 116 or first == 102:
            return _boolean(data, start, end, bits, row)
        code = parse_float(data, start, end, bits, row)
    if code == UNDECIDED:
        undecided[row] = start
        return 0
    if code == OUT_OF_RANGE:
        return NUMBER_OUT_OF_RANGE
    return NUMBER_MALFORMED if code == BAD_NUMBER else 0


@helper
def _boolean(data: NDArray[np.uint8], start: int, end: int, bits: NDArray[np.uint64], row: int) -> int:
    """t, T, true, True, TRUE and the same of false."""
    truth = data[start] | 32 == 116
    text, size = (0, 4) if truth else (_FALSE_TEXT, 5)
    if end - start != 1 and end - start != size:
        return NUMBER_MALFORMED
    # The case may change only once, behind the first letter.
    upper = end - start > 1 and data[start + 1] & 32 == 0
    for index in range(end - start):
        byte = data[start + index]
        if byte | 32 != _TEXTS[text + index] or (index > 0 and (byte & 32 == 0) != upper):
            return NUMBER_MALFORMED
    if upper and data[start] & 32 != 0:
        return NUMBER_MALFORMED
    bits[row] = _TRUE if truth else _FALSE
    return 0


@helper
def _timestamp(data: NDArray[np.uint8], rules: NDArray[np.int64], state: NDArray[np.int64]) -> int:
    """Set state[STAMP], in ms: rounded down, or the server's time without a timestamp."""
    end = data.size
    state[STAMP] = rules[NOW_MS]
    if at_line_end(data, state[AT], end):
        return 0
    if data[state[AT]] != 32:
        return BAD_FIELD
    start = spaces_end(data, state[AT], end)
    state[AT] = start
    if at_line_end(data, start, end):
        return 0
    stop = value_end(data, start, end)
    code = parse_int64(data, start, stop, state, STAMP)
    if code:
        return TIMESTAMP_OUT_OF_RANGE if code == OUT_OF_RANGE else BAD_TIMESTAMP
    largest = _INT64_MAX // rules[MULTIPLY]
    if state[STAMP] > largest or state[STAMP] < -largest:
        return TIMESTAMP_OUT_OF_RANGE
    state[STAMP] = state[STAMP] * rules[MULTIPLY] // rules[DIVIDE]
    state[AT] = spaces_end(data, stop, end)
    return 0 if at_line_end(data, state[AT], end) else BAD_TIMESTAMP


@helper
def _whole_line(data: NDArray[np.uint8], rules: NDArray[np.int64], state: NDArray[np.int64]) -> int:
    """Limits that concern all bytes of the line."""
    if state[AT] - state[POSITION] > LINE_BYTES_MAX:
        return LINE_TOO_LONG
    if rules[CHECK_UTF8] and bad_utf8(data, state[POSITION], state[AT]) >= 0:
        return NOT_UTF8
    return 0


@helper
def _refuse(
    data: NDArray[np.uint8],
    code: int,
    start: int,
    refused: NDArray[np.int64],
    listed: NDArray[np.int64],
    state: NDArray[np.int64],
) -> None:
    """Count the refused line, and list it while the list has capacity."""
    refused[code] += 1
    at = bad_utf8(data, start, state[AT]) if code == NOT_UTF8 else state[AT]
    index = state[LISTED]
    if index < listed.shape[0]:
        listed[index, 0], listed[index, 1], listed[index, 2], listed[index, 3] = state[LINE], code, start, at
        state[LISTED] += 1
