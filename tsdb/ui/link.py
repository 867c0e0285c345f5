"""Link: encodes the view of an explorer in the URL, so that a copied address shows the same view.

`v` is the version. Shared by all panels: `range` (a duration before now), or `start` and `end` (times as in commands;
the page writes ms since the epoch); `refresh` (seconds; 0: by hand); `title`, `board` (1: the look of a page that is
read). Of panel N: `pN.q`, `pN.view`, `pN.unit`, `pN.axis`, `pN.stack`, `pN.losses`, `pN.symbols`, `pN.step` (a
duration), `pN.low` and `pN.high` (the ends of the axis of values), `pN.title`, `pN.compare` (a duration), `pN.alerts`
(a name, or `*`); `pN.hide` and `pN.only` for each series that is hidden or shown alone (its labels as a JSON object). A
value that cannot be read keeps its default and is named, so an old or broken link still opens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tsdb.api.prometheus.parameters import Form
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import parse_duration, parse_instant

VERSION = "1"
PANELS_MAX = 12
QUERY_CHARS_MAX = 65_536
RANGE_MS_MAX = 100 * 366 * 86_400_000
# Series that a link hides or shows alone, of one panel. An address has at most 64 KiB.
SERIES_MAX = 20
SERIES_CHARS_MAX = 1_000
REFRESHES_S = (0, 1, 2, 5, 10, 30, 60, 300)
VIEWS = ("graph", "table", "samples")
UNITS = ("", "bytes", "seconds", "percent", "ratio", "per_second")
AXES = ("linear", "log", "buckets")
TITLE_CHARS_MAX = 200
_TITLE_ALLOWED = f"a title of at most {TITLE_CHARS_MAX} characters"
_ALERTS_ALLOWED = f"the name of an alert of at most {TITLE_CHARS_MAX} characters, or *"
_TIMES_ALLOWED = "milliseconds since 1970, or a time such as 2026-01-31T12:00Z, -1h or yesterday"
_DEFAULT_RANGE = "15m"

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Panel:
    """One expression and how it is shown. query: "" before the first. losses: accept holes and lag, which the answer
    names. hide: series that are not drawn. only: if it is not empty, only these series are drawn. symbols: lines differ
    by dashes and symbols. step: a duration; "" for one that fits the width. low, high: the ends of the axis of values;
    "" for one that fits them. title: the heading on a board. compare: a duration; lines of that time before are drawn
    too. alerts: the alert whose times of firing are marked, `*` for all."""

    query: str = ""
    view: str = "graph"
    unit: str = ""
    axis: str = "linear"
    stack: bool = False
    losses: bool = False
    hide: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    symbols: bool = False
    step: str = ""
    low: str = ""
    high: str = ""
    title: str = ""
    compare: str = ""
    alerts: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """range: a duration before now; "" when start_ms and end_ms apply. refresh_s: 0 means by hand.
    board: shows graphs without their editors."""

    panels: Sequence[Panel]
    range: str = _DEFAULT_RANGE
    start_ms: int | None = None
    end_ms: int | None = None
    refresh_s: int = 0
    title: str = ""
    board: bool = False


def view_of(form: Form, now_ms: int) -> tuple[View, Sequence[str]]:
    """The view of a link, and a sentence for each part that could not be read."""
    problems: list[str] = []
    version = form.get("v")
    if version and version != VERSION:
        problems.append(
            f"This link has version {_shown(version)}; this server reads version {VERSION}. Check the panels below: "
            "options that it does not know are left out."
        )
    elif form.get("g0.expr"):
        return _of_prometheus(form, problems)
    read = _Reader(form, problems)
    range_text, start_ms, end_ms = _times(read, now_ms)
    refresh_s = int(read.choice("refresh", tuple(map(str, REFRESHES_S)), "0"))
    panels: list[Panel] = []
    while len(panels) < PANELS_MAX and (form.get(f"p{len(panels)}.q") or form.get(f"p{len(panels)}.view")):
        panels.append(_panel(read, f"p{len(panels)}."))
    if form.get(f"p{PANELS_MAX}.q"):
        problems.append(f"The link has more than {PANELS_MAX} panels; those after the first {PANELS_MAX} are left out.")
    title = read.value("title", _title, "", _TITLE_ALLOWED)
    is_board = read.choice("board", ("0", "1"), "0") == "1"
    return View(panels or [Panel()], range_text, start_ms, end_ms, refresh_s, title, is_board), problems


def range_ms(text: str) -> int:
    """Parse a range such as 15m to milliseconds. Raises ValueError."""
    try:
        found = parse_duration(text)
    except InvalidRequest:
        found = 0
    if not 1000 <= found <= RANGE_MS_MAX:
        raise ValueError(f"{_shown(text)} is no range from 1s to 100y, such as 15m")
    return found


def checked_range(text: str) -> str:
    """The text of a range. Raises ValueError."""
    range_ms(text)
    return text


class _Reader:
    """Reads the values of a form. A value that cannot be read is a problem and keeps its default."""

    def __init__(self, form: Form, problems: list[str]) -> None:
        self._form = form
        self._problems = problems

    def problem(self, text: str) -> None:
        self._problems.append(text)

    def value(self, name: str, read: Callable[[str], Value], default: Value, allowed: str) -> Value:
        text = self._form.get(name)
        if not text:
            return default
        try:
            return read(text)
        except ValueError:
            self._problems.append(f"The link has {name}={_shown(text)}; allowed is {allowed}. The default is used.")
            return default

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        def chosen(text: str) -> str:
            return choices[choices.index(text)]

        return self.value(name, chosen, default, ", ".join(filter(None, choices)))

    def series(self, name: str) -> tuple[str, ...]:
        found = self._form.all(name)
        if len(found) <= SERIES_MAX and all(len(one) <= SERIES_CHARS_MAX for one in found):
            return tuple(found)
        self._problems.append(
            f"The link has {len(found)} times {name}; allowed are {SERIES_MAX} series of {SERIES_CHARS_MAX} characters "
            "each. All series are shown."
        )
        return ()


def _times(read: _Reader, now_ms: int) -> tuple[str, int | None, int | None]:
    def instant(text: str) -> int:
        try:
            return parse_instant(text, now_ms)
        except InvalidRequest as error:
            raise ValueError(error.message) from None

    start_ms, end_ms = (read.value(name, instant, None, _TIMES_ALLOWED) for name in ("start", "end"))
    if start_ms is not None and end_ms is not None and 0 < end_ms - start_ms <= RANGE_MS_MAX:
        return "", start_ms, end_ms
    if start_ms is not None and end_ms is not None:
        read.problem(
            f"The link has start={start_ms} and end={end_ms}: "
            + ("the range ends before it begins." if end_ms <= start_ms else "the range is longer than 100 years.")
            + f" The last {_DEFAULT_RANGE} are shown."
        )

    return read.value("range", checked_range, _DEFAULT_RANGE, "a duration from 1s to 100y, such as 15m"), None, None


def _panel(read: _Reader, prefix: str) -> Panel:
    def query(text: str) -> str:
        if len(text) > QUERY_CHARS_MAX:
            raise ValueError("too long")
        return text

    return Panel(
        query=read.value(prefix + "q", query, "", f"an expression of at most {QUERY_CHARS_MAX} characters"),
        view=read.choice(prefix + "view", VIEWS, "graph"),
        unit=read.choice(prefix + "unit", UNITS, ""),
        axis=read.choice(prefix + "axis", AXES, "linear"),
        stack=read.choice(prefix + "stack", ("0", "1"), "0") == "1",
        losses=read.choice(prefix + "losses", ("0", "1"), "0") == "1",
        hide=read.series(prefix + "hide"),
        only=read.series(prefix + "only"),
        symbols=read.choice(prefix + "symbols", ("0", "1"), "0") == "1",
        step=read.value(prefix + "step", _step, "", "a duration such as 15s"),
        low=read.value(prefix + "low", end_of_axis, "", "a number"),
        high=read.value(prefix + "high", end_of_axis, "", "a number"),
        title=read.value(prefix + "title", _title, "", _TITLE_ALLOWED),
        compare=read.value(prefix + "compare", checked_range, "", "a duration such as 1d"),
        alerts=read.value(prefix + "alerts", _title, "", _ALERTS_ALLOWED),
    )


def _step(text: str) -> str:
    try:
        parse_duration(text)
    except InvalidRequest as error:
        raise ValueError(error.message) from None
    return text


def end_of_axis(text: str) -> str:
    """The text of a finite number. Raises ValueError."""
    if len(text) > 40 or not math.isfinite(float(text)):
        raise ValueError(f"{_shown(text)} is no number")
    return text


def _title(text: str) -> str:
    if len(text) > TITLE_CHARS_MAX:
        raise ValueError("too long")
    return text


def _of_prometheus(form: Form, problems: list[str]) -> tuple[View, Sequence[str]]:
    """The view of a link to Prometheus's own page, which alerts carry."""
    read = _Reader(form, problems)
    panels: list[Panel] = []
    while len(panels) < PANELS_MAX and form.get(f"g{len(panels)}.expr"):
        prefix = f"g{len(panels)}."
        is_table = form.get(prefix + "tab") in ("1", "table")
        panels.append(Panel(form.get(prefix + "expr")[:QUERY_CHARS_MAX], "table" if is_table else "graph"))

    return View(panels, read.value("g0.range_input", checked_range, "1h", "a duration from 1s to 100y")), problems


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
