"""Native histograms in the notation of Prometheus's test scripts: `{{schema:1 sum:4 count:4 buckets:[1 2 1]}}`."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tsdb.model.histograms import (
    CUSTOM_BOUNDS,
    GAUGE,
    HINT_NAMES,
    NOT_RESET,
    RESET,
    UNKNOWN,
    HistogramColumns,
    HistogramShape,
    joined_histograms,
    one_histogram,
    spans_of,
)
from tsdb.promql.evaluate.native.bucket_kernels import BOUNDS, COUNT, HINT, ORIGIN, SCHEMA, SUM, THRESHOLD, ZERO_COUNT
from tsdb.promql.evaluate.native.histograms import NativeHistograms, from_columns
from tsdb.promql.syntax.numbers import shown_g
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.unit_tests.notation import HistogramPoint, Labels, SeriesPoints
from tsdb.rules.values import RuleValue

SHOWN_BUCKETS_MAX = 1_000  # Wider histograms are shown by the indexes of their buckets.

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

    def plus(self, other: HistogramValue, sign: float) -> HistogramValue:
        """The sum with another one times its sign, at the lower resolution of both. Raises ValueError."""
        if self.bounds != other.bounds or (self.schema == CUSTOM_BOUNDS) != (other.schema == CUSTOM_BOUNDS):
            raise ValueError("a histogram and its change have other custom_values")
        schema = min(self.schema, other.schema)
        return replace(
            self,
            schema=schema,
            count=self.count + sign * other.count,
            sum=self.sum + sign * other.sum,
            zero_count=self.zero_count + sign * other.zero_count,
            positive=_added(self, other, "positive", schema, sign),
            negative=_added(self, other, "negative", schema, sign),
            has_hint=other.has_hint,
        )

    def columns(self) -> HistogramColumns:
        """Columns with this sample alone. Raises InvalidHistogram."""
        parts = [dict(sorted(part.items())) for part in (self.positive, self.negative)]
        spans = [spans_of(np.array([*part], np.int64)) for part in parts]
        return one_histogram(
            HistogramShape(self.schema, self.threshold, spans[0], spans[1], self.bounds),
            np.array([count for part in parts for count in part.values()], np.float64),
            count=self.count,
            total=self.sum,
            zero_count=self.zero_count,
            hint=self.hint,
            is_integer=False,
        )

    @property
    def text(self) -> str:
        """The value in the notation, as promtool shows and compares it: without fields that are zero, and without empty
        buckets at the ends."""
        parts = [f"schema:{self.schema}"] if self.schema else []
        numbers = (("count", self.count), ("sum", self.sum), ("z_bucket", self.zero_count))
        parts += [f"{name}:{shown_g(value)}" for name, value in (*numbers, ("z_bucket_w", self.threshold)) if value]
        if self.schema == CUSTOM_BOUNDS:
            parts.append(f"custom_values:[{' '.join(map(shown_g, self.bounds))}]")
        if self.hint != UNKNOWN:
            parts.append(f"counter_reset_hint:{HINT_NAMES[self.hint]}")
        parts += _shown_side(self.positive, "buckets", "offset")
        parts += _shown_side(self.negative, "n_buckets", "n_offset")
        return f"{{{{{' '.join(parts)}}}}}"


def _shown_side(side: Mapping[int, float], buckets: str, offset: str) -> list[str]:
    held = {index: count for index, count in side.items() if count}
    if not held:
        return []
    first, last = min(held), max(held)
    shown = [f"{offset}:{first}"] if first else []
    if last - first >= SHOWN_BUCKETS_MAX:
        return [*shown, f"{buckets}:[{' '.join(f'{index}={shown_g(held[index])}' for index in sorted(held))}]"]
    return [*shown, f"{buckets}:[{' '.join(shown_g(held.get(index, 0.0)) for index in range(first, last + 1))}]"]


def _added(one: HistogramValue, other: HistogramValue, side: str, schema: int, sign: float) -> Mapping[int, float]:
    found: dict[int, float] = {}
    for value, factor in ((one, 1.0), (other, sign)):
        for index, count in getattr(value, side).items():
            place = index if schema == CUSTOM_BOUNDS else ((index - 1) >> (value.schema - schema)) + 1
            found[place] = found.get(place, 0.0) + factor * count
    return found


def parse_histogram(text: str) -> HistogramValue:
    """Raises ValueError, and InvalidHistogram for buckets without a meaning."""
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
        _hint(fields.get("counter_reset_hint", "unknown")),
        fields.pop("counter_reset_hint", None) is not None,
    )
    if fields:
        raise ValueError(f"unknown fields of a histogram: {', '.join(fields)}")
    found.columns()
    return found


def _hint(text: str) -> int:
    if text not in HINT_NAMES:
        raise ValueError(f"counter_reset_hint {text}, must be one of {', '.join(HINT_NAMES)}")
    return HINT_NAMES.index(text)


def _list(text: str) -> list[float]:
    return [float(number) for number in text.strip("[]").split()]


def _buckets(text: str, offset: int) -> dict[int, float]:
    return {offset + index: count for index, count in enumerate(_list(text))}


def histogram_points(series: SeriesPoints, start_ms: int, step_ms: int) -> Iterator[tuple[int, HistogramValue]]:
    """Time and value of the points that are histograms. Equal points share a value. Raises ValueError."""
    known: dict[str, HistogramValue] = {}

    def parsed(text: str) -> HistogramValue:
        if text not in known:
            known[text] = parse_histogram(text)
        return known[text]

    value = HistogramValue()
    for index, point in enumerate(series.points):
        if not isinstance(point, HistogramPoint):
            continue
        if point.times:  # The point before has all changes but this one.
            value = value.plus(parsed(point.change[1:]), -1.0 if point.change[0] == "-" else 1.0)
        else:
            value = parsed(point.text)
        yield start_ms + index * step_ms, value


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


class ScriptStorage(MemoryStorage):
    """Samples in memory. A histogram has the hint that Prometheus's storage gives it: that of a counter says where it
    was not reset. It never says that it was (prometheus/prometheus issue 15346)."""

    def add_histograms(self, labels: Labels, points: Iterable[tuple[int, HistogramValue]]) -> None:
        """Histograms of a series. `with_hints` follows."""
        last: HistogramValue | None = None
        found: list[tuple[int, RuleValue]] = []
        for ts_ms, value in points:
            found.append((ts_ms, found[-1][1] if value is last else value.columns()))  # Repeated values share columns.
            last = value
        self.add(labels, found)

    def with_hints(self, labels: Labels, since_ms: int | None = None) -> None:
        """Give the histograms of a series their hints from a time on, after all of its samples are there."""
        column = self._columns[labels]
        before: HistogramColumns | None = None
        first = 0 if since_ms is None else max(bisect_left(column.ts_ms, since_ms) - 1, 0)
        for place, ts_ms in enumerate(column.ts_ms[first:]):
            value = column.histograms.get(ts_ms)
            is_before = since_ms is not None and place == 0 and ts_ms < since_ms
            if value is not None and value.hints[0] != GAUGE and not is_before:
                hint = _stored_hint(value, before)
                if value.hints[0] != hint:
                    column.histograms[ts_ms] = _with_hint(value, hint)
            before = value


def _stored_hint(value: HistogramColumns, before: HistogramColumns | None) -> int:
    if value.hints[0] == RESET or before is None or before.hints[0] == GAUGE:
        return UNKNOWN
    pair = from_columns(joined_histograms([_with_hint(one, UNKNOWN) for one in (before, value)]))
    return UNKNOWN if pair.are_resets(np.array([1]), np.array([0]))[0] else NOT_RESET


def _with_hint(value: HistogramColumns, hint: int) -> HistogramColumns:
    return replace(value, hints=np.array([hint], np.uint8))
