"""Helpers that work on bytes of text: they compare texts, make label names and write numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import copy_bytes

NOT_TEXT = 0xFF
_UNDERSCORE = 0x5F
_KEY = np.frombuffer(b"key_", np.uint8)


@helper
def equal(a: NDArray[np.uint8], at: int, end: int, b: NDArray[np.uint8], start: int, stop: int) -> bool:
    """Whether two spans have the same bytes."""
    if end - at != stop - start:
        return False
    for i in range(end - at):  # noqa: SIM110  # numba has no generators here.
        if a[at + i] != b[start + i]:
            return False
    return True


@helper
def less(data: NDArray[np.uint8], at: int, end: int, start: int, stop: int) -> bool:
    """Whether the first span is before the second in the order of bytes."""
    for i in range(min(end - at, stop - start)):
        if data[at + i] != data[start + i]:
            return bool(data[at + i] < data[start + i])
    return end - at < stop - start


@helper
def put_text(data: NDArray[np.uint8], at: int, end: int, out: NDArray[np.uint8], cursor: int) -> int:
    """Copy a span; the new cursor, or -1 when it has the byte 0xFF, which separates labels."""
    found = False
    for i in range(end - at):
        byte = data[at + i]
        out[cursor + i] = byte
        found |= byte == NOT_TEXT
    return -1 if found else cursor + end - at


@helper
def put_decimal(value: int, out: NDArray[np.uint8], cursor: int) -> int:
    """Append the digits of an int64. Returns the new cursor."""
    rest = np.uint64(value)
    if value < 0:
        out[cursor] = 0x2D
        cursor += 1
        rest = np.uint64(0) - rest
    digits = 1
    power = np.uint64(10)
    while digits < 19 and rest >= power:
        digits += 1
        power *= np.uint64(10)
    for i in range(digits - 1, -1, -1):
        out[cursor + i] = np.uint8(0x30 + int(rest % np.uint64(10)))
        rest //= np.uint64(10)
    return cursor + digits


@helper
def put_label_name(
    data: NDArray[np.uint8], at: int, end: int, escapes: bool, out: NDArray[np.uint8], cursor: int
) -> int:
    """Append the label name of an attribute's key, as `names.label_name` makes it. Returns the new cursor.

    -1: nothing is left of the key. -2: it is not valid UTF-8.

    """
    if at == end:
        return -1
    prefix = _prefix_bytes(data, at, end) if escapes else 0
    copy_bytes(out, cursor, _KEY, 0, prefix)
    cursor += prefix
    changed, letters = False, prefix > 0
    while at < end:
        size = utf8_bytes(data, at, end)
        if size == 0:
            return -2
        byte = data[at]
        if escapes and not _in_label(byte):
            out[cursor] = _UNDERSCORE
            cursor += 1
            changed = True
        else:
            copy_bytes(out, cursor, data, at, size)
            cursor += size
            letters |= byte != _UNDERSCORE
        at += size
    return -1 if changed and not letters else cursor


@helper
def utf8_bytes(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Number of bytes of the character at `at`; 0 when it is not valid UTF-8."""
    byte = int(data[at])
    if byte < 0x80:
        return 1
    size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
    if byte < 0xC2 or byte > 0xF4 or end - at < size:
        return 0
    second = int(data[at + 1])
    low = 0xA0 if byte == 0xE0 else 0x90 if byte == 0xF0 else 0x80
    high = 0x9F if byte == 0xED else 0x8F if byte == 0xF4 else 0xBF
    if second < low or second > high:
        return 0
    for i in range(2, size):
        if data[at + i] & 0xC0 != 0x80:
            return 0
    return size


@helper
def _in_label(byte: int) -> bool:
    """Whether a label name of Prometheus may have the byte."""
    return 0x61 <= byte <= 0x7A or 0x41 <= byte <= 0x5A or 0x30 <= byte <= 0x39 or byte == _UNDERSCORE


@helper
def _prefix_bytes(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Bytes of `key_` that come before a name: all before a digit, three before a single `_`."""
    byte = int(data[at])
    if 0x30 <= byte <= 0x39:
        return 4
    if byte != _UNDERSCORE and _in_label(byte):
        return 0
    after = at + max(1, utf8_bytes(data, at, end))
    if after < end and (data[after] == _UNDERSCORE or not _in_label(data[after])):
        return 0
    return 3
