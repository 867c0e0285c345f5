"""Helpers over the bytes of line protocol: ends of names, strings and lines; names copied without escapes; UTF-8."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper

# The kinds of text. Names are sanitised by kind; a measurement has its own escapes.
MEASUREMENT, FIELD, TAG_NAME, TAG_VALUE = 0, 1, 2, 3

_TAB, _LF, _CR, _SPACE, _QUOTE, _COMMA = 9, 10, 13, 32, 34, 44
_COLON, _EQUALS, _BACKSLASH, _UNDERSCORE = 58, 61, 92, 95


@helper
def at_line_end(data: NDArray[np.uint8], p: int, end: int) -> bool:
    """Whether p is at LF, CR LF, or the end of the data (a last CR included)."""
    if p >= end or data[p] == _LF:
        return True
    return data[p] == _CR and (p + 1 >= end or data[p + 1] == _LF)


@helper
def name_end(data: NDArray[np.uint8], p: int, end: int, equals: bool) -> int:
    """The first comma, space, or (with `equals`) equals sign without a backslash before it, or the line's end."""
    while p < end:
        byte = data[p]
        if byte == _BACKSLASH:
            if p + 1 < end and data[p + 1] in (_COMMA, _SPACE, _EQUALS):
                p += 1
        elif byte in (_COMMA, _SPACE) or (equals and byte == _EQUALS) or at_line_end(data, p, end):
            break
        p += 1
    return p


@helper
def value_end(data: NDArray[np.uint8], p: int, end: int) -> int:
    """The first comma or space, or the line's end."""
    while p < end and data[p] != _COMMA and data[p] != _SPACE and not at_line_end(data, p, end):
        p += 1
    return p


@helper
def string_end(data: NDArray[np.uint8], p: int, end: int) -> int:
    """The quote that ends a string whose first byte is at p; -1 without one. A string may have line ends."""
    while p < end:
        if data[p] == _BACKSLASH:
            p += 1
        elif data[p] == _QUOTE:
            return p
        p += 1
    return -1


@helper
def spaces_end(data: NDArray[np.uint8], p: int, end: int) -> int:
    """Position of the first byte that is not a space."""
    while p < end and data[p] == _SPACE:
        p += 1
    return p


@helper
def blank_end(data: NDArray[np.uint8], p: int, end: int) -> int:
    """The first byte that is neither space nor tab."""
    while p < end and (data[p] == _SPACE or data[p] == _TAB):
        p += 1
    return p


@helper
def next_line(data: NDArray[np.uint8], p: int, end: int) -> int:
    """The byte after the next LF, or the end of the data."""
    while p < end:
        p += 1
        if data[p - 1] == _LF:
            break
    return p


@helper
def line_ends(data: NDArray[np.uint8], start: int, end: int) -> int:
    """The number of LF in data[start:end)."""
    count = 0
    for p in range(start, end):
        count += data[p] == _LF
    return count


@helper
def copy_text(
    data: NDArray[np.uint8], start: int, end: int, kind: int, sanitised: bool, out: NDArray[np.uint8], at: int
) -> int:
    """Write data[start:end) to out[at:] without escapes, as the name that it becomes. Returns its end in `out`; -1 when
    it does not fit."""
    sanitised = sanitised and kind != TAG_VALUE
    first = at
    p = start
    while p < end:
        byte = data[p]
        if byte == _BACKSLASH and p + 1 < end:
            after = data[p + 1]
            if after in (_COMMA, _SPACE) or (after == _EQUALS and kind != MEASUREMENT):
                byte = after
                p += 1
        p += 1
        if sanitised:
            if byte >= 0x80 and byte < 0xC0:
                continue  # A character of several bytes is one underscore, written for its first byte.
            digit = byte >= 48 and byte <= 57
            if not (digit or _is_letter(byte) or (byte == _COLON and kind != TAG_NAME)):
                byte = np.uint8(_UNDERSCORE)
            elif digit and at == first and kind != FIELD:
                if at >= out.size:
                    return -1
                out[at] = _UNDERSCORE
                at += 1
        if at >= out.size:
            return -1
        out[at] = byte
        at += 1
    return at


@helper
def copy_bytes(source: NDArray[np.uint8], start: int, end: int, out: NDArray[np.uint8], at: int) -> int:
    """Write source[start:end) to out[at:]. Returns its end in `out`; -1 when it does not fit."""
    if end - start > out.size - at:
        return -1
    size = end - start
    for index in range(size):
        out[at + index] = source[start + index]
    return at + size


@helper
def same_bytes(data: NDArray[np.uint8], a: int, b: int, other: NDArray[np.uint8], start: int, end: int) -> bool:
    """Whether data[a:b) is other[start:end)."""
    if b - a != end - start:
        return False
    index = 0
    while a + index < b and data[a + index] == other[start + index]:
        index += 1
    return a + index == b


@helper
def _is_letter(byte: int) -> bool:
    return byte == _UNDERSCORE or (byte >= 65 and byte <= 90) or (byte >= 97 and byte <= 122)


@helper
def bad_utf8(data: NDArray[np.uint8], start: int, end: int) -> int:
    """The first byte of data[start:end) that does not continue valid UTF-8; -1 when all do."""
    p = start
    while p < end:
        byte = data[p]
        if byte < 0x80:
            p += 1
            continue
        more, lowest, highest = 0, 0x80, 0xBF
        if byte >= 0xC2 and byte <= 0xDF:
            more = 1
        elif byte >= 0xE0 and byte <= 0xEF:
            more = 2
            # Overlong forms and halves of UTF-16 pairs are not valid.
            lowest = 0xA0 if byte == 0xE0 else 0x80
            highest = 0x9F if byte == 0xED else 0xBF
        elif byte >= 0xF0 and byte <= 0xF4:
            more = 3
            lowest = 0x90 if byte == 0xF0 else 0x80
            highest = 0x8F if byte == 0xF4 else 0xBF
        else:
            return p
        for index in range(p + 1, p + 1 + more):
            if index >= end or data[index] < lowest or data[index] > highest:
                return p
            lowest, highest = 0x80, 0xBF
        p += 1 + more
    return -1
