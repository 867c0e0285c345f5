"""Batching: decides when gathered items leave as a batch. Pure.

The first item starts the linger time. A batch leaves when it is full, when it has min_items and no more can come at
this moment, or exactly at the end of the linger time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tsdb.parallel_consumer.errors import InvalidConfig

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class BatchSize:
    """max_items: the largest batch. min_items: wait for this number, but no longer than linger_s."""

    max_items: int = 100
    min_items: int = 1
    linger_s: float = 0.0

    def __post_init__(self) -> None:
        if not (1 <= self.min_items <= self.max_items and self.linger_s >= 0):
            raise InvalidConfig(f"{self}: needs 1 <= min_items <= max_items and linger_s of 0 or more")


class Batcher(Generic[Item]):
    def __init__(self, size: BatchSize) -> None:
        self._size = size
        self._gathered: list[Item] = []
        self._leaves_at: float | None = None

    def add(self, item: Item) -> list[Item] | None:
        """Add an item; returns the batch if it is now full."""
        self._gathered.append(item)
        return self._leave() if len(self._gathered) == self._size.max_items else None

    def settle(self, now: float) -> list[Item] | None:
        """No more items can be added now; returns the batch if it leaves."""
        if not self._gathered:
            return None
        if self._leaves_at is None:
            self._leaves_at = now + self._size.linger_s
        if len(self._gathered) >= self._size.min_items or now >= self._leaves_at:
            return self._leave()
        return None

    def due_in_s(self, now: float) -> float | None:
        """Seconds until the batch leaves at any size; None: it is empty."""
        return None if self._leaves_at is None else max(0.0, self._leaves_at - now)

    def _leave(self) -> list[Item]:
        left, self._gathered = self._gathered, []
        self._leaves_at = None
        return left
