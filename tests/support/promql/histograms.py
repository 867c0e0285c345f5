"""Storage of test scripts with start timestamps, and classic histograms as native ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tsdb.model.details import SampleDetails
from tsdb.model.histograms import CUSTOM_BOUNDS
from tsdb.model.labels import canonical_labels
from tsdb.model.selector import Matcher
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.rules.unit_tests.histograms import HistogramValue, ScriptStorage
from tsdb.rules.unit_tests.notation import Labels, SeriesPoints, labels_of
from tsdb.selector.selectors import METRIC_NAME


class HistogramStorage(ScriptStorage):
    """Samples in memory, with histograms and start timestamps."""

    def __init__(self) -> None:
        super().__init__()
        self._starts: dict[bytes, dict[int, int]] = {}

    def add_start(self, labels: Labels, ts_ms: int, start_ms: int) -> None:
        """The start timestamp of a sample."""
        self._starts.setdefault(canonical_labels(labels), {})[ts_ms] = start_ms

    def clear(self) -> None:
        """Remove all series and samples."""
        super().clear()
        self._starts.clear()

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        """As Storage.select, with the start timestamps."""
        found = super().select(matchers, start_ms, end_ms)
        starts = np.zeros(len(found.ts_ms), np.int64)
        for row, labels in enumerate(found.labels):
            of_times = self._starts.get(labels, {})
            for at in range(int(found.starts[row]), int(found.starts[row + 1])):
                starts[at] = of_times.get(int(found.ts_ms[at]), 0)
        if not starts.any():
            return found
        return replace(found, details=replace(found.details or SampleDetails(), start_ms=starts))


def custom_histograms(load: Sequence[SeriesPoints], step_ms: int) -> dict[Labels, dict[int, HistogramValue]]:
    """Classic histograms as native ones with their bounds, by series and time. Raises ValueError for counts that
    fall."""
    parts: dict[Labels, dict[int, _Classic]] = {}
    for series in load:
        labels = dict(series.labels)
        name = labels.get(METRIC_NAME, "")
        suffix = next((suffix for suffix in ("_bucket", "_count", "_sum") if name.endswith(suffix)), None)
        bound = labels.pop("le", None)
        if suffix is None or (suffix == "_bucket" and (bound is None or not _is_number(bound))):
            continue
        found = parts.setdefault(labels_of(labels | {METRIC_NAME: name.removesuffix(suffix)}), {})
        for ts_ms, value in series.samples(0, step_ms):
            classic = found.setdefault(ts_ms, _Classic())
            if suffix == "_bucket":
                classic.buckets[float(bound or "nan")] = value
            elif suffix == "_count":
                classic.count = value
            else:
                classic.sum = value
    return {
        labels: {ts_ms: classic.value() for ts_ms, classic in sorted(found.items())} for labels, found in parts.items()
    }


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


@dataclass(slots=True)
class _Classic:
    """buckets: cumulative counts by their upper bounds."""

    buckets: dict[float, float] = field(default_factory=dict)
    count: float | None = None
    sum: float = 0.0

    def value(self) -> HistogramValue:
        """The native histogram. Raises ValueError."""
        ordered = sorted(self.buckets.items())
        count = ordered[-1][1] if self.count is None else self.count
        if not ordered or ordered[-1][0] != math.inf:
            ordered.append((math.inf, count))
        counts = [value for _, value in ordered]
        own = [now - before for now, before in zip(counts, [0.0, *counts], strict=False)]
        if min(own) < 0 or counts[-1] != count:
            raise ValueError(f"not a histogram: {self}")
        bounds = tuple(bound for bound, _ in ordered[:-1])
        return HistogramValue(CUSTOM_BOUNDS, count, self.sum, bounds=bounds, positive=dict(enumerate(own)))
