"""Parses series in the notation of Prometheus's test scripts: `name{label="value"} 1+2x3 _ stale`.

Native histograms are found here, and understood in `tsdb.rules.unit_tests.histograms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tsdb.model.stale import STALE
from tsdb.promql.syntax.literals import duration_ms_of
from tsdb.selector.selectors import METRIC_NAME
from tsdb.selector.tokens import string_of

POINTS_MAX = 10_000_000

Labels: TypeAlias = tuple[tuple[str, str], ...]  # The labels are sorted by name and have no empty values.


@dataclass(frozen=True, slots=True)
class HistogramPoint:
    """A native histogram, as it is written: `text`, and then `times` times the change, which has its sign."""

    text: str
    change: str = ""
    times: int = 0


Point: TypeAlias = float | HistogramPoint | None  # None stands for a missing sample.


@dataclass(frozen=True, slots=True)
class SeriesPoints:
    """points: one value for each step."""

    labels: Labels
    points: tuple[Point, ...]

    @property
    def has_histograms(self) -> bool:
        """Whether a point is a native histogram."""
        return any(isinstance(point, HistogramPoint) for point in self.points)

    def samples(self, start_ms: int, step_ms: int) -> Iterator[tuple[int, float]]:
        """Time and value of the points that are floats."""
        for index, point in enumerate(self.points):
            if isinstance(point, float):
                yield start_ms + index * step_ms, point


_STRING = r""" "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `[^`]*` """
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(
    rf"""\s* (?: (?P<name>[a-zA-Z_][a-zA-Z0-9_]*) | (?P<quoted>{_STRING}) ) \s* (?: = \s* (?P<value>{_STRING}) )?
         \s* (?: , | (?=}}) )""",
    re.VERBOSE,
)
_CLOSE = re.compile(r"\s*\}")
_HISTOGRAM = r"\{\{[^{}]*\}\}"
# Hexadecimal numbers have no place in a series: `0x3` is four times 0.
_NUMBER = r"(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|nan)"
_ITEM = re.compile(
    rf"""\s+ (?: (?P<absent>_) | (?P<stale>stale)
           | (?P<number>[+-]?{_NUMBER}) (?P<change>[+-]{_NUMBER}(?=x))?
           | (?P<histogram>{_HISTOGRAM}) (?P<histogram_change>[+-]{_HISTOGRAM}(?=x))? )
         (?:x(?P<times>\d+))? (?=\s|\Z)""",
    re.VERBOSE | re.IGNORECASE,
)


def parse_series(text: str) -> SeriesPoints:
    """Raises ValueError."""
    labels, at = _labels(text)
    return SeriesPoints(labels, _points(text, at))


def labels_of(labels: Mapping[str, str]) -> Labels:
    """Labels in the order of the text. A label with an empty value is left out."""
    return tuple(sorted((name, value) for name, value in labels.items() if value))


def shown_labels(labels: Labels) -> str:
    """Labels in the notation of Prometheus."""
    rest = ", ".join(f'{name}="{value}"' for name, value in labels if name != METRIC_NAME)
    return f"{dict(labels).get(METRIC_NAME, '')}{{{rest}}}"


def duration_ms(text: str) -> int:
    """Milliseconds of a duration, or of a plain 0. Raises ValueError."""
    if not text:
        raise ValueError("empty duration")
    return 0 if text == "0" else duration_ms_of(text)


def _labels(text: str) -> tuple[Labels, int]:
    """The labels, and where the points begin."""
    match = _NAME.match(text)
    found = {METRIC_NAME: match.group()} if match else {}
    at = match.end() if match else 0
    if not text.startswith("{", at):
        if match is None:
            raise ValueError(f"no labels: {text!r}")
        return labels_of(found), at
    at += 1
    while (close := _CLOSE.match(text, at)) is None:
        label = _LABEL.match(text, at)
        if label is None:
            raise ValueError(f"not a label: {text[at:]!r}")
        name = label["name"] or string_of(label["quoted"])
        if label["value"] is not None:
            found[name] = string_of(label["value"])
        elif label["quoted"] is not None:
            found[METRIC_NAME] = name
        else:
            raise ValueError(f"label without a value: {text[at:]!r}")
        at = label.end()
    return labels_of(found), close.end()


def _points(text: str, at: int) -> tuple[Point, ...]:
    points: list[Point] = []
    while text[at:].strip():
        item = _ITEM.match(text, at)
        if item is None:
            raise ValueError(f"not a point: {text[at:]!r}")
        points += _expanded(item)
        if len(points) > POINTS_MAX:
            raise ValueError(f"more than {POINTS_MAX} points of a series")
        at = item.end()
    return tuple(points)


def _expanded(item: re.Match[str]) -> list[Point]:
    """The points of `value`, `valuexN` or `value+changexN`. N counts what follows the first, but for `_xN`."""
    digits = item["times"] or "0"
    times = int(digits) if len(digits) < 10 else POINTS_MAX
    if times >= POINTS_MAX:
        raise ValueError(f"x{digits[:20]}: the limit is {POINTS_MAX} points of a series")
    if item["absent"]:
        return [None] * max(times, 1)
    if item["stale"]:
        return [STALE] * (times + 1)
    if item["histogram"]:
        change = item["histogram_change"] or ""
        return [HistogramPoint(item["histogram"], change, number if change else 0) for number in range(times + 1)]
    value, change = float(item["number"]), float(item["change"] or 0)
    points: list[Point] = []
    for _ in range(times + 1):
        points.append(value)
        value += change
    return points
