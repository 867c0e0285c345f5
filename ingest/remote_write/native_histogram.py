"""Converts native histograms to classic ones: `_bucket` with `le`, `_sum` and `_count`, at the boundaries of their
schema.

Buckets are cumulative. A boundary is emitted for the upper end of each bucket and for the lower end of each span, so
that a gap between spans stays empty. Bounds of buckets as in Prometheus: bucket i of schema s ends at 2^(i * 2^-s);
schema -53 has its own bounds (custom_values).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np

from tsdb.model.errors import InvalidRequest

STALE = 0x7FF0000000000002  # Bits of Prometheus's stale marker.
CUSTOM = -53
SCHEMA_MIN, SCHEMA_MAX = -4, 8
SPAN_OFFSET_MAX = 1 << 30
_VARINT, _FIXED64, _LENGTH = 0, 1, 2


@dataclass(slots=True)
class NativeHistogram:
    """A Histogram message. NaN payloads of `sum` survive as bits."""

    ts_ms: int = 0
    count: float = 0.0
    sum_bits: int = 0
    schema: int = 0
    zero_threshold: float = 0.0
    zero_count: float = 0.0
    # Negative spans, positive spans.
    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = field(default_factory=lambda: ([], []))
    deltas: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    counts: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    custom_values: list[float] = field(default_factory=list)

    @property
    def bounds_max(self) -> int:
        """Upper bound of the number of its classic buckets."""
        counts = sum(map(len, self.deltas)) + sum(map(len, self.counts))
        return counts + sum(map(len, self.spans)) + len(self.custom_values) + 2

    @property
    def stale(self) -> bool:
        """Whether it is a stale marker, which has no buckets."""
        return self.sum_bits == STALE


@dataclass(frozen=True, slots=True)
class ClassicHistogram:
    """bounds: texts of `le` below +Inf, ascending; cumulative: counts up to each."""

    bounds: Sequence[str]
    cumulative: Sequence[float]


def parse_histogram(data: bytes) -> NativeHistogram:
    """Raises InvalidRequest (malformed_request) for bytes that are not a Histogram message."""
    found = NativeHistogram()
    try:
        for number, wire, value, part in fields(data):
            _take(found, number, wire, value, part)
    except (IndexError, struct.error, ValueError) as error:
        raise InvalidRequest("a native histogram is corrupt protobuf", reason="malformed_request") from error
    return found


def _take(found: NativeHistogram, number: int, wire: int, value: int, part: bytes) -> None:
    if number in (1, 6) and wire == _VARINT:
        setattr(found, "count" if number == 1 else "zero_count", float(value))
    elif number in (2, 5, 7) and wire == _FIXED64:
        name = {2: "count", 5: "zero_threshold", 7: "zero_count"}[number]
        setattr(found, name, struct.unpack("<d", part)[0])
    elif number == 3 and wire == _FIXED64:
        found.sum_bits = int.from_bytes(part, "little")
    elif number == 4 and wire == _VARINT:
        found.schema = _unzigzag(value)
    elif number in (8, 11):
        found.spans[number == 11].append(_span(part))
    elif number in (9, 12):
        found.deltas[number == 12].extend(map(_unzigzag, varints(part) if wire == _LENGTH else [value]))
    elif number in (10, 13):
        found.counts[number == 13].extend(np.frombuffer(part, "<f8").tolist())
    elif number == 15 and wire == _VARINT:
        found.ts_ms = signed(value)
    elif number == 16:
        found.custom_values.extend(np.frombuffer(part, "<f8").tolist())


def fields(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(number, wire type, varint, bytes) of each field."""
    pos, end = 0, len(data)
    while pos < end:
        tag, pos = _varint(data, pos)
        wire, value, stop = tag & 7, 0, pos
        if wire == _VARINT:
            value, stop = _varint(data, pos)
        elif wire == _LENGTH:
            size, pos = _varint(data, pos)
            stop = pos + size
        else:
            stop = pos + {_FIXED64: 8, 5: 4}.get(wire, end + 1)
        if stop > end:
            raise IndexError
        yield tag >> 3, wire, value, data[pos:stop]
        pos = stop


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, pos
    raise ValueError("a number has more than 10 bytes")


def varints(data: bytes) -> Iterator[int]:
    pos = 0
    while pos < len(data):
        value, pos = _varint(data, pos)
        yield value


def _span(data: bytes) -> tuple[int, int]:
    numbers = {number: value for number, wire, value, _ in fields(data) if wire == _VARINT}
    return _unzigzag(numbers.get(1, 0)), numbers.get(2, 0)


def signed(value: int) -> int:
    """The int64 of a varint."""
    return value - (1 << 64) if value >> 63 else value


def _unzigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)


def classic(histogram: NativeHistogram) -> ClassicHistogram:
    """Raises InvalidRequest (native_histogram): unknown schema, counts that do not fit the spans or are negative."""
    if histogram.schema == CUSTOM:
        return _custom(histogram)
    if not SCHEMA_MIN <= histogram.schema <= SCHEMA_MAX:
        raise _refused(f"schema {histogram.schema} is unknown")
    negative, positive = _buckets(histogram, 0), _buckets(histogram, 1)
    steps: list[tuple[float, float]] = []
    schema, total = histogram.schema, 0.0
    # Buckets ascend from the lowest value. Bucket i is [-bound(i), -bound(i - 1)).
    for index, count in reversed(negative):
        if not steps or steps[-1][0] != -bound(index, schema):
            steps.append((-bound(index, schema), total))
        total += count
        steps.append((-bound(index - 1, schema), total))
    if negative:
        steps.append((-histogram.zero_threshold, total))
    total += histogram.zero_count
    steps.append((histogram.zero_threshold, total))
    for index, count in positive:
        if steps[-1][0] < bound(index - 1, schema):
            steps.append((bound(index - 1, schema), total))
        total += count
        steps.append((bound(index, schema), total))
    return _ascending(steps)


def _custom(histogram: NativeHistogram) -> ClassicHistogram:
    bounds = histogram.custom_values
    if any(not low < high for low, high in pairwise(bounds)) or any(map(math.isnan, bounds)):
        raise _refused("its custom bounds do not ascend")
    counts = dict(_buckets(histogram, 1))
    if any(not 0 <= index <= len(bounds) for index in counts):
        raise _refused(f"it has a bucket outside its {len(bounds)} custom bounds")
    steps, total = [], 0.0
    for index, upper in enumerate(bounds):
        total += counts.get(index, 0.0)
        steps.append((upper, total))
    return _ascending(steps)


def _ascending(steps: Sequence[tuple[float, float]]) -> ClassicHistogram:
    """A bound that comes twice, as where a bucket overlaps the zero bucket, has its last count."""
    merged: dict[float, float] = {}
    lowest = -math.inf
    for upper, total in steps:
        lowest = max(lowest, upper)
        merged[lowest] = total
    finite = {upper: total for upper, total in merged.items() if math.isfinite(upper)}
    return ClassicHistogram([bound_text(upper) for upper in finite], list(finite.values()))


def _buckets(histogram: NativeHistogram, sign: int) -> list[tuple[int, float]]:
    """(index, count) of each bucket, ascending."""
    counts = _counts(histogram, sign)
    spans = histogram.spans[sign]
    if sum(length for _, length in spans) != len(counts):
        raise _refused(f"its spans have {sum(length for _, length in spans)} buckets and {len(counts)} counts")
    found: list[tuple[int, float]] = []
    index = 0
    for number, (offset, length) in enumerate(spans):
        if (number and offset < 0) or abs(offset) > SPAN_OFFSET_MAX:
            raise _refused(f"span {number} has the offset {offset}")
        index += offset
        found += [(index + step, counts[len(found) + step]) for step in range(length)]
        index += length
    return found


def _counts(histogram: NativeHistogram, sign: int) -> list[float]:
    counts = histogram.counts[sign]
    if not counts:
        total = 0
        counts = [float(total := total + delta) for delta in histogram.deltas[sign]]
    if not all(count >= 0 and math.isfinite(count) for count in counts):
        raise _refused("a bucket has a negative count")
    return counts


@lru_cache(100_000)
def bound(index: int, schema: int) -> float:
    """Upper end of a positive bucket; infinity above the largest float."""
    if schema <= 0:
        exponent, fraction = index << -schema, 0.5
    else:
        exponent, fraction = index >> schema, 0.5 * 2.0 ** ((index & (1 << schema) - 1) / (1 << schema))
    try:
        return math.ldexp(fraction, exponent + 1)
    except OverflowError:
        return math.inf


@lru_cache(100_000)
def bound_text(value: float) -> str:
    """A bound as Go writes it in `le`: the shortest decimal, with an exponent below 1e-4 and from 1e6 on."""
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return np.format_float_positional(value, trim="-")
    return np.format_float_scientific(value, trim="-", exp_digits=2)


def _refused(text: str) -> InvalidRequest:
    return InvalidRequest(f"native histogram: {text}", reason="native_histogram")
