"""Helpers that write the labels of one point.

Tables lie between the kernels and Python, which makes the texts of metrics and resources.

All texts are spans of one arena of bytes, which begins with PIECES.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.otlp.mapping.text_kernels import equal, less, put_decimal, put_label_name, put_text
from ingest.otlp.wire.field_kernels import (
    ATTRIBUTE_FIELDS,
    BOOL,
    DOUBLE,
    INT,
    NOTHING,
    ODD_AT,
    POINT_AT,
    POINT_END,
    STRING,
    SUMMARY,
    read_attribute,
)
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import copy_bytes
from tsdb.codec.protobuf_kernels import LENGTH, next_field

PIECES = b"__name__\xff_sum_count_bucket\xffle\xff\xffquantile\xff+Inf"
# Pieces of a row, by their position in PIECES. FAMILY adds nothing to the name of the family.
FAMILY = 0
SUM_SUFFIX, COUNT_SUFFIX, BUCKET = (PIECES.index(piece) for piece in (b"_sum", b"_count", b"_bucket"))
LE, QUANTILE_LABEL, INFINITE = (PIECES.index(piece) for piece in (b"\xffle\xff", b"\xffquantile\xff", b"+Inf"))
# Bytes of a row beside its family, its value of `le` or `quantile`, and the labels of resource and point.
ROW_BYTES_MAX = 48
# Columns of the table of families; a metric is a row.
(NAME_IN_ARENA, NAME_IN_ARENA_END, METRIC_CONTEXT, CONTEXT_BYTES, METRIC_REFUSED), FAMILY_COLUMNS = range(5), 5
# Columns of the contexts' table: the labels of one resource or scope are consecutive rows, and the context of a metric
# is the first of them. FALLBACK: an attribute of the point with the same name comes first. LABEL_LAST ends the context,
# as a row without a label.
(LABEL_AT, LABEL_NAME_END, LABEL_END, FALLBACK, LABEL_LAST), CONTEXT_COLUMNS = range(5), 5
# Causes of a refused point.
ACCEPTED, OF_METRIC, TOO_MANY_ATTRIBUTES, NAMELESS_LABEL, NOT_UTF8, SCALE_TOO_SMALL = range(6)
# Columns of the scratch table of one point's attributes.
(
    KEY_AT, KEY_END, VALUE_KIND, VALUE_AT, VALUE_END, NAME_AT, NAME_END, LEADER, ORDER,
), SCRATCH_COLUMNS = range(9), 9  # fmt: skip
# Bytes of an attribute's label beyond its bytes on the wire: separators, `key_`, the digits.
ATTRIBUTE_EXTRA_BYTES = 26

SEPARATOR, JOINT = 0xFF, 0x3B  # 0x3B: `;`
_NAME_BYTES = 9  # `__name__` and its separator, the first piece of the arena.
_TRUE_FALSE = np.frombuffer(b"truefalse", np.uint8)


@helper
def write_row(
    arena: NDArray[np.uint8],
    name: int,
    name_end: int,
    suffix: int,
    base: NDArray[np.uint8],
    base_end: int,
    cut_at: int,
    cut_end: int,
    label: int,
    text: int,
    text_end: int,
    out: NDArray[np.uint8],
    cursor: int,
) -> int:
    """One label set: name and suffix, the label with its text unless it is FAMILY, and the base without its cut."""
    copy_bytes(out, cursor, arena, 0, _NAME_BYTES)
    cursor += _NAME_BYTES
    copy_bytes(out, cursor, arena, name, name_end - name)
    cursor += name_end - name
    if suffix != FAMILY:
        size = 4 if suffix == SUM_SUFFIX else 6 if suffix == COUNT_SUFFIX else 7
        copy_bytes(out, cursor, arena, suffix, size)
        cursor += size
    if label != FAMILY:
        size = 4 if label == LE else 10
        copy_bytes(out, cursor, arena, label, size)
        copy_bytes(out, cursor + size, arena, text, text_end - text)
        cursor += size + text_end - text
    copy_bytes(out, cursor, base, 0, cut_at)
    cursor += cut_at
    copy_bytes(out, cursor, base, cut_end, base_end - cut_end)
    return cursor + base_end - cut_end


@helper
def base_labels(
    data: NDArray[np.uint8],
    arena: NDArray[np.uint8],
    contexts: NDArray[np.int64],
    context: int,
    point: NDArray[np.int64],
    kind: int,
    odd_texts: NDArray[np.int64],
    escapes: bool,
    attributes: NDArray[np.int64],
    names: NDArray[np.uint8],
    base: NDArray[np.uint8],
) -> tuple[int, int, int, int]:
    """(bytes in `base`, cause of a refusal or 0, start and end of the label that the one of buckets replaces).

    Each label is 0xFF name 0xFF value.
    """
    count = _read_attributes(data, point, kind, odd_texts, attributes)
    cause = _name_attributes(data, count, escapes, attributes, names)
    if cause != ACCEPTED:
        return 0, cause, 0, 0
    cursor, cut_at, cut_end = 0, 0, 0
    entry = context
    while contexts[entry, LABEL_LAST] == 0:
        at, name_end, end = contexts[entry, LABEL_AT], contexts[entry, LABEL_NAME_END], contexts[entry, LABEL_END]
        shadowed = False
        for i in range(count):
            if attributes[i, LEADER] == i and equal(
                names, attributes[i, NAME_AT], attributes[i, NAME_END], arena, at, name_end
            ):
                if contexts[entry, FALLBACK] == 0:
                    attributes[i, LEADER] = -1  # The label of the resource replaces it.
                else:
                    shadowed = shadowed or not _empty(i, count, attributes)
        if not shadowed and end > name_end + 1:
            base[cursor] = SEPARATOR
            copy_bytes(base, cursor + 1, arena, at, end - at)
            if _replaced(arena, at, name_end, kind, arena):
                cut_at, cut_end = cursor, cursor + 1 + end - at
            cursor += 1 + end - at
        entry += 1
    for i in range(count):
        leader = attributes[i, ORDER]
        at, end = attributes[leader, NAME_AT], attributes[leader, NAME_END]
        if attributes[leader, LEADER] != leader or equal(names, at, end, arena, 0, _NAME_BYTES - 1):
            continue
        start = cursor
        base[cursor] = SEPARATOR
        copy_bytes(base, cursor + 1, names, at, end - at)
        cursor += 1 + end - at
        base[cursor] = SEPARATOR
        cursor += 1
        value_at = cursor
        for j in range(i, count):
            one = attributes[j, ORDER]
            if attributes[one, LEADER] == leader:
                if cursor > value_at:
                    base[cursor] = JOINT
                    cursor += 1
                cursor = _put_value(data, arena, attributes[one], base, cursor)
                if cursor < 0:
                    return 0, NOT_UTF8, 0, 0
        if cursor == value_at:
            cursor = start
        elif _replaced(names, at, end, kind, arena):
            cut_at, cut_end = start, cursor
    return cursor, ACCEPTED, cut_at, cut_end


@helper
def _replaced(names: NDArray[np.uint8], at: int, end: int, kind: int, arena: NDArray[np.uint8]) -> bool:
    """Whether the name is `le`, or `quantile` in a summary. The label of the bucket or quantile replaces it."""
    piece, size = (QUANTILE_LABEL, 8) if kind == SUMMARY else (LE, 2)
    return equal(names, at, end, arena, piece + 1, piece + 1 + size)


@helper
def _empty(leader: int, count: int, attributes: NDArray[np.int64]) -> bool:
    """Whether all attributes of a name have no text, and so give no label."""
    for i in range(count):
        kind = attributes[i, VALUE_KIND]
        if attributes[i, LEADER] == leader and (
            kind in (BOOL, INT) or attributes[i, VALUE_END] > attributes[i, VALUE_AT]
        ):
            return False
    return True


@helper
def _read_attributes(
    data: NDArray[np.uint8],
    point: NDArray[np.int64],
    kind: int,
    odd_texts: NDArray[np.int64],
    attributes: NDArray[np.int64],
) -> int:
    """Read the point's attributes into the scratch table, ordered by key. Returns their number."""
    count, odd, pos = 0, point[ODD_AT], point[POINT_AT]
    while pos < point[POINT_END]:
        pos, number, wire, start, stop = next_field(data, pos, point[POINT_END])
        if number != ATTRIBUTE_FIELDS[kind] or wire != LENGTH:
            continue
        _, key_at, key_end, value_kind, value, value_end = read_attribute(data, start, stop)
        if value_kind >= DOUBLE:
            value, value_end = odd_texts[odd, 0], odd_texts[odd, 1]
            odd += 1
        row = attributes[count]
        row[KEY_AT], row[KEY_END], row[VALUE_KIND] = key_at, key_end, value_kind
        row[VALUE_AT], row[VALUE_END] = value, value_end
        at = count
        while at > 0:
            before = attributes[attributes[at - 1, ORDER]]
            if not less(data, key_at, key_end, before[KEY_AT], before[KEY_END]):
                break
            attributes[at, ORDER] = attributes[at - 1, ORDER]
            at -= 1
        attributes[at, ORDER] = count
        count += 1
    return count


@helper
def _name_attributes(
    data: NDArray[np.uint8], count: int, escapes: bool, attributes: NDArray[np.int64], names: NDArray[np.uint8]
) -> int:
    """Write the label names, and the leader of each attribute, which is the first one with its name. Returns the cause
    of a refusal, or 0."""
    cursor = 0
    for i in range(count):
        current = attributes[i, ORDER]
        row = attributes[current]
        end = put_label_name(data, row[KEY_AT], row[KEY_END], escapes, names, cursor)
        if end < 0:
            return NOT_UTF8 if end == -2 else NAMELESS_LABEL
        row[NAME_AT], row[NAME_END], row[LEADER] = cursor, end, current
        for j in range(i):
            before = attributes[attributes[j, ORDER]]
            if equal(names, cursor, end, names, before[NAME_AT], before[NAME_END]):
                row[LEADER] = before[LEADER]
                break
        cursor = end
    return ACCEPTED


@helper
def _put_value(
    data: NDArray[np.uint8], arena: NDArray[np.uint8], row: NDArray[np.int64], out: NDArray[np.uint8], cursor: int
) -> int:
    """Append the value. Returns the new cursor; -1 when the value has a byte that UTF-8 never has."""
    kind, at, end = row[VALUE_KIND], row[VALUE_AT], row[VALUE_END]
    if kind == STRING:
        return put_text(data, at, end, out, cursor)
    if kind == INT:
        return put_decimal(at, out, cursor)
    if kind == BOOL:
        start, size = (0, 4) if at != 0 else (4, 5)
        copy_bytes(out, cursor, _TRUE_FALSE, start, size)
        return cursor + size
    if kind != NOTHING:
        copy_bytes(out, cursor, arena, at, end - at)
        return int(cursor + end - at)
    return cursor
