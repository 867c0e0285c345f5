"""Script: the commands of one of Prometheus's test scripts. Every line is understood, or parsing fails."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from support.promql.evaluation import Evaluation, parse_evaluation
from tsdb.rules.unit_tests.notation import Labels, SeriesPoints, duration_ms, parse_series

_LOAD = re.compile(r"load(?P<nhcb>_with_nhcb)?\s+(?P<step>\S+)")
_START_TIMES = re.compile(r"(?P<series>\S*)@st\s+(?P<times>.+)")
_START_TIME = re.compile(r"(?P<first>_|[+-]?\d+[a-z]*?)(?P<step>[+-]\d+[a-z]*?)?(?:x(?P<times>\d+))?")


class ScriptError(ValueError):
    """A line that is not understood."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")


@dataclass(frozen=True, slots=True)
class Load:
    """series: the series in the order of the lines. start_times: how long after each point of a series its start
    timestamp is, in ms; None: the point has none. with_nhcb: classic histograms are loaded as native ones too.
    """

    step_ms: int
    series: tuple[SeriesPoints, ...]
    start_times: Mapping[Labels, Sequence[int | None]]
    with_nhcb: bool


@dataclass(frozen=True, slots=True)
class Clear:
    """Removes what was loaded."""


Command: TypeAlias = Load | Clear | Evaluation


def commands(text: str) -> list[Command]:
    """The commands of a script in their order. Raises ScriptError."""
    lines = _Lines(text)
    found: list[Command] = []
    while (head := lines.next_command()) is not None:
        try:
            found.append(_command(head, lines))
        except (ValueError, re.error) as error:
            raise ScriptError(lines.number, str(error)) from error
    return found


class _Lines:
    """The lines of a script without spaces at their ends. A comment is an empty line."""

    def __init__(self, text: str) -> None:
        stripped = [line.strip() for line in text.split("\n")]
        self._lines = ["" if line.startswith("#") else line for line in stripped]
        self.number = 0  # Lines taken, which is the number of the newest one.

    def next_command(self) -> str | None:
        """The next line with text; None at the end."""
        while self.number < len(self._lines):
            self.number += 1
            if self._lines[self.number - 1]:
                return self._lines[self.number - 1]
        return None

    def block(self) -> Iterator[str]:
        """The lines up to an empty one. A line is taken when it is asked for."""
        while self.number < len(self._lines) and self._lines[self.number]:
            self.number += 1
            yield self._lines[self.number - 1]


def _command(head: str, lines: _Lines) -> Command:
    word = head.split()[0]
    if word == "clear":
        return Clear()
    if word.startswith("load"):
        return _load(head, lines.block())
    if word.startswith("eval"):
        return parse_evaluation(lines.number, head, lines.block())
    raise ValueError(f"unknown command: {head!r}")


def _load(head: str, block: Iterator[str]) -> Load:
    match = _LOAD.fullmatch(head)
    if match is None:
        raise ValueError(f"unknown load: {head!r}")
    found: dict[Labels, SeriesPoints] = {}  # A line replaces an earlier one of the same series.
    start_times: dict[Labels, Sequence[int | None]] = {}
    of_all: Sequence[int | None] = ()
    for text in block:
        if start := _START_TIMES.fullmatch(text):
            times = _start_times(start["times"])
            if start["series"]:
                start_times[parse_series(start["series"]).labels] = times
            else:
                of_all = times
            continue
        series = parse_series(text)
        found[series.labels] = series
        if of_all:
            start_times.setdefault(series.labels, of_all)
    return Load(duration_ms(match["step"]), tuple(found.values()), start_times, match["nhcb"] is not None)


def _start_times(text: str) -> list[int | None]:
    found: list[int | None] = []
    for word in text.split():
        match = _START_TIME.fullmatch(word)
        if match is None:
            raise ValueError(f"unknown start timestamps: {text!r}")
        times = 0 if match["times"] is None else int(match["times"])
        if match["first"] == "_":
            found += [None] * max(times, 1)
            continue
        first, step = _signed_ms(match["first"]), _signed_ms(match["step"] or "0")
        found += [first + number * step for number in range(times + 1)]
    return found


def _signed_ms(text: str) -> int:
    unsigned = text.lstrip("+-")
    length_ms = 0 if not unsigned.strip("0") else duration_ms(unsigned)
    return -length_ms if text[0] == "-" else length_ms
