"""Arguments of commands: times, durations and selectors. Typer parses them, so that a mistake is a misuse (exit 2)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from tsdb.cli.terminal.errors import BadText, shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import UNITS_MS, parse_duration, parse_instant
from tsdb.selector.selectors import parse_selector

_NO_PROMQL = (
    '{text} is more than a selector: give a selector such as up{{job="a"}}; `tsdb query` without --raw evaluates PromQL'
)
DEFAULT_RANGE_MS = 3_600_000  # One hour, the usual first view of a dashboard.


@dataclass(frozen=True, slots=True)
class Milliseconds:
    """A parsed duration or time, in ms."""

    ms: int


def duration(text: str) -> Milliseconds:
    """parse_duration, with a misuse for its error."""
    try:
        return Milliseconds(parse_duration(text))
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None


def duration_text(ms: int) -> str:
    """A duration in the form that `duration` parses, in the largest unit with a whole number."""
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if ms % UNITS_MS[unit] == 0)
    return f"{ms // UNITS_MS[unit]}{unit}"


def instant(text: str) -> Milliseconds:
    """parse_instant, with a misuse for its error."""
    try:
        return Milliseconds(parse_instant(text, time.time_ns() // 1_000_000))
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None


def selector(text: str) -> str:
    """The given selector, after a check."""
    try:
        parse_selector(text)
    except InvalidRequest as error:
        if _is_expression(text):
            raise typer.BadParameter(_NO_PROMQL.format(text=shown(text))) from None
        raise BadText(error.message, text) from None
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
LoaderWait = Annotated[
    Milliseconds | None,
    typer.Option(
        "--wait",
        parser=duration,
        metavar="DURATION",
        help="Longest wait for the loader, at the end; by default 10m.",
    ),
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


EnableFeature = Annotated[
    list[str] | None,
    typer.Option(
        "--enable-feature",
        metavar="NAME",
        help="A feature of PromQL that the rules use, as in the setting of a querier.",
    ),
]
