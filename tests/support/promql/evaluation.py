"""Evaluation: an `eval` command of a test script, with what it expects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tsdb.rules.unit_tests.notation import SeriesPoints, duration_ms, parse_series
from tsdb.selector.tokens import string_of

_INSTANT = re.compile(r"eval(?:_(?P<kind>fail|warn|ordered|info))?\s+instant\s+at\s+(?P<at>\S+)\s+(?P<query>.+)")
_RANGE = re.compile(
    r"eval(?:_(?P<kind>fail|warn|info))?\s+range\s+from\s+(?P<start>\S+)\s+to\s+(?P<end>\S+)\s+step\s+(?P<step>\S+)"
    r"\s+(?P<query>.+)"
)
_EXPECT = re.compile(r"expect\s+(ordered|fail|warn|no_warn|info|no_info)(?:\s+(regex|msg):(.+))?")
_OLD_FAIL = re.compile(r"expected_fail_(message|regexp)\s+(.+)")
_SAMPLES = re.compile(r"expect range vector\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+)")
_TEXT = re.compile(r"expect string\s+(\"(?:[^\"\\]|\\.)*\"|`[^`]*`)")


@dataclass(frozen=True, slots=True)
class Times:
    """start_ms, start_ms + step_ms, ... up to end_ms."""

    start_ms: int
    end_ms: int
    step_ms: int


@dataclass(frozen=True, slots=True)
class Condition:
    """A message, or a regular expression that is found in it."""

    text: str
    is_pattern: bool

    def __post_init__(self) -> None:
        if self.is_pattern:
            re.compile(self.text)

    def holds(self, message: str) -> bool:
        """Whether a message is the expected one."""
        return re.search(self.text, message) is not None if self.is_pattern else message == self.text


ANYTHING = Condition("", True)


@dataclass(slots=True)
class Expectation:
    """conditions: conditions by kind: `fail`, `warn`, `info`, `no_warn`, `no_info`, `ordered`. scalar, text: the
    expected result, when it is a scalar or a string.

    samples_at: times of the points of a range vector.
    """

    conditions: dict[str, list[Condition]] = field(default_factory=dict)
    series: list[SeriesPoints] = field(default_factory=list)
    scalar: float | None = None
    text: str | None = None
    samples_at: Times | None = None

    def of(self, kind: str) -> list[Condition]:
        """The conditions of one kind."""
        return self.conditions.get(kind, [])

    def add(self, kind: str, condition: Condition = ANYTHING) -> None:
        """One more condition of a kind."""
        self.conditions.setdefault(kind, []).append(condition)

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the series counts."""
        return "ordered" in self.conditions

    @property
    def has_histograms(self) -> bool:
        """Whether a point is a native histogram."""
        return any(series.has_histograms for series in self.series)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """line: number of the line, from 1. times: the times of a range query; at_ms: the time of an instant query, or the
    end of the range.
    """

    line: int
    query: str
    at_ms: int
    times: Times | None
    expected: Expectation


def parse_evaluation(line: int, head: str, block: Iterator[str]) -> Evaluation:
    """block: the lines that follow; as many are taken as belong to the evaluation. Raises ValueError."""
    instant, ranged = _INSTANT.fullmatch(head), _RANGE.fullmatch(head)
    match = instant or ranged
    if match is None:
        raise ValueError(f"unknown evaluation: {head!r}")
    times = None if instant else _times(match["start"], match["end"], match["step"])
    at_ms = duration_ms(match["at"]) if times is None else times.end_ms
    expected = Expectation()
    if match["kind"]:
        expected.add(match["kind"])
    for text in block:
        if _expect_line(expected, text):
            continue
        if (number := _number(text)) is not None:
            expected.scalar = number
            break
        expected.series.append(_expected_series(text, times, expected))
    if expected.samples_at is not None:
        at_ms = expected.samples_at.end_ms
    return Evaluation(line, match["query"], at_ms, times, expected)


def _expect_line(expected: Expectation, text: str) -> bool:
    """Whether the line is an expectation other than a series."""
    if match := _SAMPLES.fullmatch(text):
        expected.samples_at = _times(*match.groups())
    elif match := _TEXT.fullmatch(text):
        expected.text = string_of(match[1])
    elif match := _OLD_FAIL.fullmatch(text):
        expected.conditions["fail"] = [Condition(match[2], match[1] == "regexp")]
    elif match := _EXPECT.fullmatch(text):
        expected.add(match[1], Condition(match[3].strip(), match[2] == "regex") if match[2] else ANYTHING)
    elif text.split()[0] == "expect":
        raise ValueError(f"unknown expectation: {text!r}")
    else:
        return False
    return True


def _expected_series(text: str, times: Times | None, expected: Expectation) -> SeriesPoints:
    series = parse_series(text)
    if not series.points:
        raise ValueError(f"series without points: {text!r}")
    if times is None and expected.samples_at is None and len(series.points) > 1:
        raise ValueError(f"several points of an instant: {text!r}")
    return series


def _times(start: str, end: str, step: str) -> Times:
    return Times(duration_ms(start), duration_ms(end), duration_ms(step))


def _number(text: str) -> float | None:
    """The value of a scalar, hexadecimal too; None for any other line."""
    try:
        return float(int(text, 0)) if text.startswith(("0x", "0X")) else float(text)
    except ValueError:
        return None
