"""Slow queries of a process: the newest of them, for pages. The log has all."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

KEPT = 100


@dataclass(frozen=True, slots=True)
class SlowQuery:
    """One slow query. text: shortened. kind: `instant`, `range`, or another endpoint. seconds: queue_s and the
    evaluation together, of which reads took read_s. series, samples: counts of what was read."""

    ended_ms: int
    text: str
    kind: str
    seconds: float
    queue_s: float
    read_s: float
    series: int
    samples: int


class SlowQueries:
    """Keeps the newest KEPT slow queries. Thread-safe."""

    def __init__(self) -> None:
        self._queries: deque[SlowQuery] = deque(maxlen=KEPT)

    def add(self, query: SlowQuery) -> None:
        self._queries.append(query)

    def all(self) -> list[SlowQuery]:
        """Slow queries, the newest first."""
        return list(reversed(self._queries.copy()))
