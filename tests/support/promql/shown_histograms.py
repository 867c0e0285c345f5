"""Histograms as answers in JSON show them: without a schema, with the bounds of their buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tsdb.promql.evaluate.native.histograms import from_columns
from tsdb.promql.evaluate.native.shown import buckets_of
from tsdb.rules.unit_tests.histograms import HistogramValue

# The number in JSON of whether the lower and the upper bound are a part of a bucket.
_RULES = {(False, True): 0, (True, False): 1, (False, False): 2, (True, True): 3}


@dataclass(frozen=True, slots=True)
class ShownHistogram:
    """buckets: (rule of the bounds, lower, upper, count) of each that is not empty, ascending."""

    count: float
    sum: float
    buckets: tuple[tuple[int, float, float, float], ...]


def histogram_of_json(shown: Mapping[str, Any]) -> ShownHistogram:
    """The histogram in an answer of Prometheus's API."""
    buckets = tuple((rule, float(low), float(up), float(count)) for rule, low, up, count in shown.get("buckets", ()))
    return ShownHistogram(float(shown["count"]), float(shown["sum"]), buckets)


def shown_histogram(value: HistogramValue) -> ShownHistogram:
    """The histogram as an answer shows it."""
    found = buckets_of(from_columns(value.columns()), 0)
    buckets = tuple((_RULES[one.has_lower, one.has_upper], one.lower, one.upper, one.observations) for one in found)
    return ShownHistogram(value.count, value.sum, buckets)
