"""Remembered announcements: which (series, epoch) history has already, so that repeats cost nothing."""

from __future__ import annotations

import threading

import xxhash

REMEMBERED_MAX = 1_000_000


class Remembered:
    """At most `pairs_max` of them, the latest; one that is forgotten is written once more. Thread-safe.

    Two generations: when the younger half is full the older one goes at once. Announcements are told by 128 bits of
    their bytes, so that one which differs is never taken for a repeat. `life` moves when all is forgotten.
    """

    def __init__(self, pairs_max: int = REMEMBERED_MAX) -> None:
        self._half = max(1, pairs_max // 2)
        self._lock = threading.Lock()  # Guards all below.
        self._young: set[int] = set()
        self._old: set[int] = set()
        self.life = 0

    def __len__(self) -> int:
        with self._lock:
            return len(self._young) + len(self._old)

    def holds(self, mark: int) -> bool:
        """Whether it was written already; one that was is remembered for longer."""
        with self._lock:
            if mark in self._young:
                return True
            if mark not in self._old:
                return False
            self._old.discard(mark)
            self._add_locked(mark)
            return True

    def add(self, mark: int, life: int) -> None:
        """It is written; life: as it was when the write began."""
        with self._lock:
            if life == self.life:
                self._add_locked(mark)

    def forget(self) -> None:
        """History may not have any of them: it was found without what was loaded."""
        with self._lock:
            self.life += 1
            self._young, self._old = set(), set()

    def _add_locked(self, mark: int) -> None:
        self._young.add(mark)
        if len(self._young) >= self._half:
            self._old, self._young = self._young, set()


def mark_of(partition: int, key: bytes, value: bytes) -> int:
    """What stands for one announcement of a partition."""
    return int(xxhash.xxh3_128_intdigest(b"%d:%d:" % (partition, len(key)) + key + value))
