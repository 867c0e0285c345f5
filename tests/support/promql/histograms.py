"""Native histograms of test scripts: their notation, `{{schema:1 sum:4 count:4 buckets:[1 2 1]}}`, and a storage."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tsdb.model.details import SampleDetails
from tsdb.model.histograms import (
    CUSTOM_BOUNDS,
    GAUGE,
    NOT_RESET,
    RESET,
    UNKNOWN,
    HistogramColumns,
    HistogramShape,
    joined_histograms,
)
from tsdb.model.labels import canonical_labels
from tsdb.model.selector import Matcher
from tsdb.promql.evaluate.native.bucket_kernels import BOUNDS, COUNT, HINT, ORIGIN, SCHEMA, SUM, THRESHOLD, ZERO_COUNT
from tsdb.promql.evaluate.native.histograms import NativeHistograms, from_columns
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.unit_tests.notation import Histogram, Labels, SeriesPoints, labels_of
from tsdb.selector.selectors import METRIC_NAME

HINTS = {"unknown": UNKNOWN, "reset": RESET, "not_reset": NOT_RESET, "gauge": GAUGE}
_FIELD = re.compile(r"([a-z_]+):(\[[^\]]*\]|\S+)")


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """One histogram. positive, negative: counts by the index of the bucket. has_hint: whether the text gives a hint."""

    schema: int = 0
    count: float = 0.0
    sum: float = 0.0
    zero_count: float = 0.0
    threshold: float = 0.0
    bounds: tuple[float, ...] = ()
    positive: Mapping[int, float] = field(default_factory=dict)
    negative: Mapping[int, float] = field(default_factory=dict)
    hint: int = UNKNOWN
    has_hint: bool = False

    def plus(self, other: HistogramValue, times: float) -> HistogramValue:
        """The sum with `times` times another one, at the lower resolution of both."""
        schema = min(self.schema, other.schema)
        return replace(
            self,
            schema=schema,
            count=self.count + times * other.count,
            sum=self.sum + times * other.sum,
            zero_count=self.zero_count + times * other.zero_count,
            positive=_added(self, other, "positive", schema, times),
            negative=_added(self, other, "negative", schema, times),
            has_hint=other.has_hint,
        )

    def columns(self) -> HistogramColumns:
        """Columns with this sample alone."""
        parts = (self.positive, self.negative)
        spans = tuple(((min(part), max(part) - min(part) + 1),) if part else () for part in parts)
        counts = [part.get(index, 0.0) for part in parts if part for index in range(min(part), max(part) + 1)]
        return HistogramColumns(
            (HistogramShape(self.schema, self.threshold, spans[0], spans[1], self.bounds),),
            np.zeros(1, np.int32),
            np.array([0, len(counts)], np.int64),
            np.array(counts, np.float64),
            np.array([self.count]),
            np.array([self.sum]),
            np.array([self.zero_count]),
            np.array([self.hint], np.uint8),
            np.zeros(1, np.bool_),
        )


def _added(one: HistogramValue, other: HistogramValue, side: str, schema: int, times: float) -> Mapping[int, float]:
    found: dict[int, float] = {}
    for value, factor in ((one, 1.0), (other, times)):
        for index, count in getattr(value, side).items():
            place = index if schema == CUSTOM_BOUNDS else ((index - 1) >> (value.schema - schema)) + 1
            found[place] = found.get(place, 0.0) + factor * count
    return found


def parse_histogram(text: str) -> HistogramValue:
    """Raises ValueError."""
    fields = dict(_FIELD.findall(text.removeprefix("{{").removesuffix("}}")))
    found = HistogramValue(
        int(fields.pop("schema", 0)),
        float(fields.pop("count", 0)),
        float(fields.pop("sum", 0)),
        float(fields.pop("z_bucket", 0)),
        float(fields.pop("z_bucket_w", 0)),
        tuple(_list(fields.pop("custom_values", "[]"))),
        _buckets(fields.pop("buckets", "[]"), int(fields.pop("offset", 0))),
        _buckets(fields.pop("n_buckets", "[]"), int(fields.pop("n_offset", 0))),
        HINTS[fields.get("counter_reset_hint", "unknown")],
        fields.pop("counter_reset_hint", None) is not None,
    )
    if fields:
        raise ValueError(f"unknown fields of a histogram: {fields}")
    return found


def _list(text: str) -> list[float]:
    return [float(number) for number in text.strip("[]").split()]


def _buckets(text: str, offset: int) -> dict[int, float]:
    return {offset + index: count for index, count in enumerate(_list(text))}


def value_of(point: Histogram) -> HistogramValue:
    """The histogram of a point of a series. Raises ValueError."""
    base = parse_histogram(point.text)
    if not point.change:
        return base
    sign = -1.0 if point.change[0] == "-" else 1.0
    return base.plus(parse_histogram(point.change[1:]), sign * point.times) if point.times else base


def histogram_points(series: SeriesPoints, start_ms: int, step_ms: int) -> Iterator[tuple[int, HistogramValue]]:
    """Time and value of the points that are histograms."""
    for index, point in enumerate(series.points):
        if isinstance(point, Histogram):
            yield start_ms + index * step_ms, value_of(point)


def values_of(histograms: NativeHistograms) -> list[HistogramValue]:
    """Each histogram as a value, to compare it."""
    found: list[HistogramValue] = []
    for row in range(len(histograms)):
        part = slice(histograms.starts[row], histograms.starts[row + 1])
        pairs = list(zip(histograms.keys[part].tolist(), histograms.buckets[part].tolist(), strict=True))
        numbers, whole = histograms.numbers[row].tolist(), histograms.whole[row].tolist()
        found.append(
            HistogramValue(
                whole[SCHEMA],
                numbers[COUNT],
                numbers[SUM],
                numbers[ZERO_COUNT],
                numbers[THRESHOLD],
                histograms.bounds[whole[BOUNDS]] if whole[BOUNDS] >= 0 else (),
                {key - ORIGIN: count for key, count in pairs if key > 0},
                {-key - ORIGIN: count for key, count in pairs if key < 0},
                whole[HINT],
            )
        )
    return found


class HistogramStorage(MemoryStorage):
    """Samples in memory, with histograms and start timestamps.

    A histogram has the hint that Prometheus's storage gives it: that of a counter says where it was not reset. It never
    says that it was (prometheus/prometheus issue 15346).
    """

    def __init__(self) -> None:
        super().__init__()
        self._histograms: dict[bytes, dict[int, HistogramValue]] = {}
        self._starts: dict[bytes, dict[int, int]] = {}

    def add_start(self, labels: Labels, ts_ms: int, start_ms: int) -> None:
        """The start timestamp of a sample."""
        self._starts.setdefault(canonical_labels(labels), {})[ts_ms] = start_ms

    def add_histograms(self, labels: Labels, points: Iterable[tuple[int, HistogramValue]]) -> None:
        """Histograms of a series, ascending in time, without other samples between two loads."""
        found = list(points)
        self.add(labels, ((ts_ms, value.sum) for ts_ms, value in found))
        held = self._histograms.setdefault(canonical_labels(labels), {})
        held.update(found)

    def with_hints(self, labels: Labels) -> None:
        """Give the histograms of a series their hints, after all of its samples are there."""
        canonical = canonical_labels(labels)
        held = self._histograms.get(canonical, {})
        all_ms = self._columns[labels].ts_ms
        before: HistogramValue | None = None
        for ts_ms in all_ms:
            value = held.get(ts_ms)
            if value is not None and value.hint != GAUGE:
                held[ts_ms] = replace(value, hint=_stored_hint(value, before))
            before = value

    def clear(self) -> None:
        """Remove all series and samples."""
        super().clear()
        self._histograms.clear()
        self._starts.clear()

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        """As Storage.select, with the details."""
        found = super().select(matchers, start_ms, end_ms)
        of, starts = np.full(len(found.ts_ms), -1, np.int64), np.zeros(len(found.ts_ms), np.int64)
        parts: list[HistogramColumns] = []
        for row, labels in enumerate(found.labels):
            held, of_times = self._histograms.get(labels, {}), self._starts.get(labels, {})
            for at in range(int(found.starts[row]), int(found.starts[row + 1])):
                starts[at] = of_times.get(int(found.ts_ms[at]), 0)
                value = held.get(int(found.ts_ms[at]))
                if value is not None:
                    of[at] = len(parts)
                    parts.append(value.columns())
        if not parts and not starts.any():
            return found
        histograms = (joined_histograms(parts), of) if parts else (None, None)
        return replace(found, details=SampleDetails(starts if starts.any() else None, *histograms))


def _stored_hint(value: HistogramValue, before: HistogramValue | None) -> int:
    if value.hint == RESET or before is None or before.hint == GAUGE:
        return UNKNOWN
    pair = from_columns(joined_histograms([replace(one, hint=UNKNOWN).columns() for one in (before, value)]))
    return UNKNOWN if pair.are_resets(np.array([1]), np.array([0]))[0] else NOT_RESET


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
