"""Remembered announcements: the (series, epoch) that history already has, so that repeats cost nothing."""

from __future__ import annotations

import threading

import xxhash

from tsdb.model import defaults


class Remembered:
    """Remembers the latest announcements, at most `pairs_max`. A forgotten one is written again. Thread-safe.

    It has two halves: when the younger one is full, the older one is dropped. An announcement is identified by a
    128-bit hash of its bytes, so that a changed one is never taken for a repeat. `life` counts the calls of `forget`.

    """

    def __init__(self, pairs_max: int = defaults.LOAD_SERIES_REMEMBERED_MAX) -> None:
        self._half = max(1, pairs_max // 2)
        self._lock = threading.Lock()  # Guards all below.
        self._young: set[int] = set()
        self._old: set[int] = set()
        self.life = 0

    def __len__(self) -> int:
        with self._lock:
            return len(self._young) + len(self._old)

    def holds(self, mark: int) -> bool:
        """Whether the announcement was written already. A hit keeps it for longer."""
        with self._lock:
            if mark in self._young:
                return True
            if mark not in self._old:
                return False
            self._old.discard(mark)
            self._add_locked(mark)
            return True

    def add(self, mark: int, life: int) -> None:
        """Remember a written announcement. life: its value when the write began."""
        with self._lock:
            if life == self.life:
                self._add_locked(mark)

    def forget(self) -> None:
        """Forget all: history was emptied or replaced and may not have them."""
        with self._lock:
            self.life += 1
            self._young, self._old = set(), set()

    def _add_locked(self, mark: int) -> None:
        self._young.add(mark)
        if len(self._young) >= self._half:
            self._old, self._young = self._young, set()


def mark_of(partition: int, key: bytes, value: bytes) -> int:
    """The 128-bit mark of one announcement of a partition."""
    return int(xxhash.xxh3_128_intdigest(b"%d:%d:" % (partition, len(key)) + key + value))
