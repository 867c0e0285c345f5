"""A process with a ruler over a log in memory and a clock by hand."""

from __future__ import annotations

import math

from support.rules.memory_log import MemoryLog
from tsdb.model.clock import ManualClock
from tsdb.rules.alerts import AlertState, Labels, active
from tsdb.rules.files import parse_rules
from tsdb.rules.groups import RuleSample
from tsdb.rules.ruler import Ruler, RulerOptions
from tsdb.rules.unit_tests.notation import labels_of

START_MS = 1_700_000_000_000  # A multiple of each interval below.
RECORD = "groups: [{name: g, interval: 10s, rules: [{record: a, expr: sum(x)}]}]"
ALERT = "{name: g, interval: 10s, rules: [{alert: A, expr: x > 5, for: 30s, keep_firing_for: 40s}]}"


class RulerProcess(MemoryLog):
    """A log in memory with rulers over it."""

    def __init__(self, *texts: str) -> None:
        super().__init__(ManualClock(START_MS))
        self.files = [parse_rules(text.encode(), f"f{number}") for number, text in enumerate(texts)]
        self.new_ruler()

    def new_ruler(self, options: RulerOptions = RulerOptions()) -> Ruler:
        self.process = self.ruler(self.files, options)
        return self.process

    def change(self, text: str) -> None:
        self.files[:] = [parse_rules(text.encode(), "f0")]

    def sample(self, value: float, name: str = "x", at_ms: int | None = None) -> None:
        self.append([RuleSample(labels_of({"__name__": name}), self.clock.now_ms() if at_ms is None else at_ms, value)])

    def run(self, seconds: int, value: float | None = None) -> None:
        """Pass seconds in steps of five, each with a sample of x, and let the ruler do all that it may."""
        for _ in range(seconds // 5):
            self.clock.advance(5_000)
            if value is not None:
                self.sample(value)
            self.settle()

    def settle(self) -> None:
        while self.process.step() == 0.0:
            pass

    def values(self, **labels: str) -> list[tuple[int, float | None]]:
        """Seconds since the start and values of a series; None stands for a stale marker."""
        wanted: Labels = labels_of({"__name__" if name == "name" else name: text for name, text in labels.items()})
        column = self.apply_all()._columns.get(wanted)
        pairs = zip(column.ts_ms, column.values, strict=True) if column else ()
        return [((ts - START_MS) // 1000, None if math.isnan(value) else value) for ts, value in pairs]


def alert(process: RulerProcess) -> tuple[AlertState, int, int | None] | None:
    """State of the active alert, and seconds since the start at which it became active and since which it is kept."""
    alerts = active(process.process.groups()[0].state.rules[0].alerts)
    if not alerts:
        return None
    kept_ms = alerts[0].kept_since_ms
    active_s = (alerts[0].active_at_ms - START_MS) // 1000
    return alerts[0].state, active_s, None if kept_ms is None else (kept_ms - START_MS) // 1000
