"""Arguments of commands: times, durations and selectors. Typer parses them, so that a mistake is a misuse (exit 2)."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from tsdb.cli.terminal.errors import shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import parse_time
from tsdb.selector.selectors import parse_selector

_DAY_MS = 86_400_000
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": _DAY_MS, "w": 7 * _DAY_MS, "y": 365 * _DAY_MS}
_RELATIVE = re.compile(r"(now|today|yesterday)(?:-(.+))?")
_AGO = re.compile(r"-([0-9].*[a-z])")  # -1h. Without a unit it is ms before the epoch.
_NO_PROMQL = (
    '{text} is more than a selector: give a selector such as up{{job="a"}}; `tsdb query` without --raw evaluates PromQL'
)
DEFAULT_RANGE_MS = 3_600_000  # One hour, the usual first view of a dashboard.
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SECONDS = re.compile(_NUMBER)
_PART = re.compile(rf"({_NUMBER})(ms|[smhdwy])")
_PARTS = re.compile(rf"(?:{_NUMBER}(?:ms|[smhdwy]))+")


@dataclass(frozen=True, slots=True)
class Milliseconds:
    """A parsed duration or time, in ms."""

    ms: int


def duration(text: str) -> Milliseconds:
    """Parse a duration such as 10m, 1.5h, 1h30m or 500ms. A week has 7 days and a year 365, as in PromQL. A bare number
    is seconds. The result is above 0."""
    found = 0.0
    if _SECONDS.fullmatch(text):
        found = float(text) * 1000
    elif _PARTS.fullmatch(text):
        found = sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
    # The comparison comes before the rounding, because a long number is infinite as a float.
    ms = round(found) if found < 1 << 53 else 0
    if ms == 0:
        raise typer.BadParameter(f"{shown(text)} is not a duration such as 30s, 10m, 1.5h, 2d, 1w or 1y, from 1 ms")
    return Milliseconds(ms)


def duration_text(ms: int) -> str:
    """A duration in the form that `duration` parses, in the largest unit with a whole number."""
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if ms % _UNITS_MS[unit] == 0)
    return f"{ms // _UNITS_MS[unit]}{unit}"


def instant(text: str) -> Milliseconds:
    """A time: ms since the epoch, ISO 8601 (UTC without a zone), now, today or yesterday (their start, UTC), the last
    three also less a duration such as now-90m, or -1h, which is now-1h."""
    now_ms = time.time_ns() // 1_000_000
    ago = _AGO.fullmatch(text)
    if ago:
        return Milliseconds(now_ms - duration(ago[1]).ms)
    relative = _RELATIVE.fullmatch(text)
    if relative:
        today_ms = now_ms - now_ms % _DAY_MS
        start_ms = {"now": now_ms, "today": today_ms, "yesterday": today_ms - _DAY_MS}[relative[1]]
        return Milliseconds(start_ms - (duration(relative[2]).ms if relative[2] else 0))
    try:
        return Milliseconds(parse_time(text))
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None


def selector(text: str) -> str:
    """The given selector, after a check."""
    try:
        parse_selector(text)
    except InvalidRequest as error:
        if _is_expression(text):
            raise typer.BadParameter(_NO_PROMQL.format(text=shown(text))) from None
        raise typer.BadParameter(error.message) from None
    return text


def _is_expression(text: str) -> bool:
    # Imported here: only a refusal needs the rest of the grammar.
    from tsdb.promql.syntax.features import ALL_FEATURES
    from tsdb.promql.syntax.parser import parse

    try:
        parse(text, ALL_FEATURES)
    except InvalidRequest:
        return False
    return True


SelectorArgument = Annotated[
    str, typer.Argument(parser=selector, metavar="SELECTOR", help='The series: name{label="value",other=~"re.*"}.')
]
OptionalSelectorArgument = Annotated[
    str | None, typer.Argument(parser=selector, metavar="[SELECTOR]", help="The series; by default all.")
]
Start = Annotated[
    Milliseconds | None,
    typer.Option(
        "--start",
        parser=instant,
        metavar="TIME",
        help="Start, included: ISO 8601 (UTC without a zone), ms since the epoch, -1h, today or yesterday (UTC).",
    ),
]
End = Annotated[
    Milliseconds | None,
    typer.Option("--end", parser=instant, metavar="TIME", help="End, excluded; forms of --start."),
]
Last = Annotated[
    Milliseconds | None,
    typer.Option("--last", parser=duration, metavar="DURATION", help="The range of this length up to now, as in 10m."),
]
TableOrJson = Annotated[Literal["table", "json"], typer.Option("--output", help="Output format.")]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The range [start_ms, end_ms), ms since the epoch, UTC."""

    start_ms: int
    end_ms: int


def time_range(start: Milliseconds | None, end: Milliseconds | None, last: Milliseconds | None) -> TimeRange | None:
    """The range given by --start and --end, or by --last; None without these options."""
    if last is not None:
        if start is not None or end is not None:
            raise typer.BadParameter("give --last, or --start and --end")
        now_ms = time.time_ns() // 1_000_000
        return TimeRange(now_ms - last.ms, now_ms + 1)
    if start is None and end is None:
        return None
    if start is None or end is None:
        raise typer.BadParameter("--start and --end go together")
    if start.ms >= end.ms:
        raise typer.BadParameter(f"--start {start.ms} is not before --end {end.ms}")
    return TimeRange(start.ms, end.ms)


def recent_range(start: Milliseconds | None, end: Milliseconds | None, last: Milliseconds | None) -> TimeRange:
    """Does what `time_range` does, with defaults: the end is now, the start is one hour before the end."""
    if last is not None or (start is not None and end is not None):
        found = time_range(start, end, last)
        assert found is not None
        return found
    end = end or Milliseconds(time.time_ns() // 1_000_000 + 1)
    found = time_range(start or Milliseconds(end.ms - DEFAULT_RANGE_MS), end, None)
    assert found is not None
    return found
