"""Computes the times of a PromQL query from its options."""

from __future__ import annotations

import time
from dataclasses import dataclass

import typer

from tsdb.cli.options.arguments import DEFAULT_RANGE_MS, Milliseconds

STEPS_WANTED = 240
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
PLAIN_STEPS_MS = [count * unit for unit in (SECOND_MS, MINUTE_MS, HOUR_MS) for count in (1, 2, 5, 10, 15, 30)]


@dataclass(frozen=True, slots=True)
class Steps:
    """The times start_ms, start_ms + step_ms, ... up to and including end_ms. step_ms is 0 for an instant query."""

    start_ms: int
    end_ms: int
    step_ms: int

    @property
    def is_instant(self) -> bool:
        return self.step_ms == 0


def steps_of(
    at: Milliseconds | None,
    start: Milliseconds | None,
    end: Milliseconds | None,
    last: Milliseconds | None,
    step: Milliseconds | None,
) -> Steps:
    """The times that the options mean. Without a time the instant is now; the default range is the hour up to now."""
    now_ms = time.time_ns() // 1_000_000
    if start is None and end is None and last is None and step is None:
        at_ms = now_ms if at is None else at.ms
        return Steps(at_ms, at_ms, 0)
    if at is not None:
        raise typer.BadParameter("give --at for one time, or --start, --end, --last and --step for a range")
    if last is not None and (start is not None or end is not None):
        raise typer.BadParameter("give --last, or --start and --end")
    end_ms = now_ms if end is None else end.ms
    length_ms = DEFAULT_RANGE_MS if last is None else last.ms
    start_ms = end_ms - length_ms if start is None else start.ms
    if start_ms > end_ms:
        raise typer.BadParameter(f"--start {start_ms} is after --end {end_ms}")
    return Steps(start_ms, end_ms, plain_step_ms(end_ms - start_ms) if step is None else step.ms)


def plain_step_ms(range_ms: int) -> int:
    """The shortest plain step that makes at most about STEPS_WANTED values of the range."""
    wanted_ms = -(-range_ms // STEPS_WANTED)
    days_ms = -(-wanted_ms // DAY_MS) * DAY_MS
    return next((step_ms for step_ms in PLAIN_STEPS_MS if step_ms >= wanted_ms), days_ms)
