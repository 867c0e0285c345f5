"""Head twin: what a head answers, from a plain list of all samples ever applied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from support.data.heads import Record

STEP_RULES: dict[int, Callable[[list[float]], float]] = {
    1: lambda values: values[-1],
    2: lambda values: _sum(values) / len(values),
    3: lambda values: _extreme(values, lambda new, old: new < old),
    4: lambda values: _extreme(values, lambda new, old: new > old),
    5: lambda values: _sum(values),
    6: lambda values: float(len(values)),
}


class HeadTwin:
    """Dicts of lists: every sample that counts, with its order, the highest of which wins."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms
        self._all: dict[int, dict[int, list[tuple[int, float]]]] = {}
        self.ignored = 0

    def apply(self, records: Sequence[Record]) -> None:
        """Apply records as Head.apply does."""
        for record in records:
            for number, ts, value in record.samples:
                if ts > record.broker_ms + self._ahead_ms:
                    self.ignored += 1
                else:
                    self._all.setdefault(number, {}).setdefault(ts, []).append((record.offset, value))

    def samples(self, numbers: Sequence[int], start_ms: int, end_ms: int) -> dict[int, dict[int, float]]:
        """{number: {ts: value}} of [start_ms, end_ms)."""
        found = {
            number: {ts: self._all[number][ts][-1][1] for ts in sorted(self._all[number]) if start_ms <= ts < end_ms}
            for number in numbers
            if number in self._all
        }
        return {number: by_time for number, by_time in found.items() if by_time}

    def steps(
        self, numbers: Sequence[int], start_ms: int, end_ms: int, step_ms: int, aggregation: int
    ) -> dict[int, dict[int, float]]:
        """Aggregates over steps from start_ms on, stamped with their start."""
        stepped: dict[int, dict[int, float]] = {}
        for number, by_time in self.samples(numbers, start_ms, end_ms).items():
            steps: dict[int, list[float]] = {}
            for ts, value in by_time.items():
                steps.setdefault(start_ms + (ts - start_ms) // step_ms * step_ms, []).append(value)
            stepped[number] = {start: STEP_RULES[aggregation](values) for start, values in steps.items()}
        return stepped

    def orders(self, number: int, ts_ms: int) -> list[tuple[int, float]]:
        """All (record offset, value) ever applied to a series at a time, the winner last."""
        return self._all.get(number, {}).get(ts_ms, [])

    def times(self, number: int) -> list[int]:
        """All sample times of a series, ascending."""
        return sorted(self._all.get(number, {}))


def _sum(values: list[float]) -> float:
    total = values[0]
    for value in values[1:]:
        total += value
    return total


def _extreme(values: list[float], better: Callable[[float, float], bool]) -> float:
    result = values[0]
    for value in values[1:]:
        if better(value, result) or math.isnan(result):
            result = value
    return result
