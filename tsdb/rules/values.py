"""Values of rules: floats and native histograms, as their samples are written, compared and kept."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from tsdb.model.histograms import GAUGE, UNKNOWN, HistogramColumns

RuleValue: TypeAlias = float | HistogramColumns  # A histogram is columns that have one sample.
ValueBits: TypeAlias = int | bytes  # Bits of a float, or those of a histogram. Equal values have equal bits.


def float_of(value: RuleValue) -> float:
    """The float of a value; 0 for a histogram, as the value of an alert in Prometheus."""
    return 0.0 if isinstance(value, HistogramColumns) else value


def recorded_value(value: RuleValue) -> RuleValue:
    """The value as a rule records it. The hint of a counter is about the sample before it, which was of another series,
    so it is left out; queries compare counts in its place."""
    if not isinstance(value, HistogramColumns):
        return value
    return replace(value, hints=np.where(value.hints == GAUGE, GAUGE, UNKNOWN).astype(np.uint8))


def value_bits(value: RuleValue) -> ValueBits:
    """The bits of a value."""
    return histogram_bits(value, 0) if isinstance(value, HistogramColumns) else _float_bits(value)


def histogram_bits(columns: HistogramColumns, row: int) -> ValueBits:
    """The bits of a histogram without its empty buckets and without the hint of a counter, which storage may change."""
    shape = columns.shapes[columns.shape_of[row]]
    counts = columns.buckets[columns.starts[row] : columns.starts[row + 1]]
    kept = np.flatnonzero(counts)
    positive = int(np.count_nonzero(kept < shape.positive_buckets))
    numbers = (columns.counts[row], columns.sums[row], columns.zero_counts[row], shape.zero_threshold, *shape.bounds)
    head = struct.pack("<3q?", shape.schema, positive, len(kept), columns.hints[row] == GAUGE)
    arrays = (np.array(numbers, np.float64), shape.indexes[kept], counts[kept])
    return b"".join((head, *(array.tobytes() for array in arrays)))


def _float_bits(value: float) -> int:
    found: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return found
