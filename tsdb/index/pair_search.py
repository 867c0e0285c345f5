"""Pair search: finds the pairs of a label arena that satisfy a condition, and caches them per condition.

Pair ids only grow, so a cached result stays valid and only newer pairs are tested. `prepare` tests values outside the
index's lock, because a regular expression over many values must not hold up the writer. `find_locked` continues from
its result and has little left to do. Values are tested a piece at a time. Between two pieces the reader's deadline is
checked. Slow searches take turns, so that together they use one core.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.index.label_arena import LabelArena
from tsdb.index.matching import Condition, Key
from tsdb.selector.pattern import Pattern

REMEMBERED_MAX = 256
# 8 MiB for all conditions together, their texts included. The least recently used condition is removed first.
PAIRS_MAX = 1 << 21
PAIR_BYTES = 4
ROUNDS_MAX = 4  # Search rounds. Each tests the pairs added during the round before.
PIECE_MIN, PIECE_MAX = 1, 4096  # Values tested between two checks of the deadline.
PIECE_S = 0.01
SLOW_S = 0.05  # Most searches over the values of a usual index take less.
TURN_S = 0.1  # How often a search that waits for its turn checks its deadline.

CheckGoing = Callable[[], None]
"""Raises when the work is no longer needed."""

# A thread has this lock for one piece of a slow search. RE2 runs without the GIL, so without the lock all cores could
# be busy.
_turn = threading.Lock()


def go_on() -> None:
    """The CheckGoing of work without a deadline."""


@dataclass(frozen=True, slots=True)
class CachedPairs:
    """Pairs of a condition whose ids are below `seen`."""

    seen: int
    pairs: NDArray[np.uint32]


NOTHING = CachedPairs(0, np.empty(0, np.uint32))


class PairSearch:
    """Searches one arena; a new arena needs a new search."""

    def __init__(self, arena: LabelArena, lock: threading.Lock) -> None:
        self._arena = arena
        self._lock = lock
        self._remembered: OrderedDict[Key, CachedPairs] = OrderedDict()
        self._pairs = 0

    @property
    def nbytes(self) -> int:
        """Memory of the cached results."""
        return PAIR_BYTES * self._pairs

    def prepare(self, condition: Condition, check_going: CheckGoing = go_on) -> CachedPairs:
        """The condition's pairs among those that are known now. check_going: called between pieces of the search."""
        if condition.is_look_up:
            return NOTHING
        with self._lock:
            found = self._remembered.get(condition.key, NOTHING)
        for _ in range(ROUNDS_MAX):
            with self._lock:
                seen, fresh = self._left_locked(condition, found)
            if found.seen and not len(fresh):
                break
            found = self._with(found, seen, fresh, condition, check_going)
            with self._lock:
                self._remember_locked(condition, found)
        return found

    def find_locked(self, condition: Condition, prepared: CachedPairs) -> NDArray[np.uint32]:
        """Ids of the pairs that satisfy the condition, ascending.

        prepared: a recent result of `prepare` for the same condition.
        """
        if condition.is_look_up:
            return np.sort(self._arena.pairs_of(condition.name, tuple(condition.pattern.literals or ())))
        seen, fresh = self._left_locked(condition, prepared)
        if not len(fresh):
            return prepared.pairs
        return self._with(prepared, seen, fresh, condition, go_on).pairs

    def _left_locked(self, condition: Condition, found: CachedPairs) -> tuple[int, NDArray[np.uint32]]:
        """(pair_count now, the pairs of the name not tested yet)."""
        return self._arena.pair_count, self._arena.all_pairs_of(condition.name, found.seen)

    def _with(
        self, found: CachedPairs, seen: int, fresh: NDArray[np.uint32], condition: Condition, check_going: CheckGoing
    ) -> CachedPairs:
        return CachedPairs(seen, np.concatenate((found.pairs, self._matching(fresh, condition, check_going))))

    def _matching(self, pairs: NDArray[np.uint32], condition: Condition, check_going: CheckGoing) -> NDArray[np.uint32]:
        pattern = condition.pattern
        likely = pairs
        if pattern.literals is None:
            likely = self._arena.with_prefix(pairs, pattern.prefix, pattern.rest_bytes_min)
        if pattern.literals is not None or pattern.matcher is not None:
            likely = self._satisfying(likely, pattern, check_going)
        return likely if condition.wanted else np.setdiff1d(pairs, likely, assume_unique=True)

    def _satisfying(self, pairs: NDArray[np.uint32], pattern: Pattern, check_going: CheckGoing) -> NDArray[np.uint32]:
        """The pairs whose value the pattern matches."""
        satisfied = np.empty(len(pairs), np.bool_)
        first, size, spent_s = 0, PIECE_MIN, 0.0
        while first < len(pairs):
            check_going()
            last = min(first + size, len(pairs))
            with _turn_of(spent_s, check_going):
                began = time.monotonic()
                satisfied[first:last] = [pattern.matches(value) for value in self._arena.values(pairs[first:last])]
                piece_s = time.monotonic() - began
            spent_s += piece_s
            first, size = last, _next_size(size, piece_s)
        return pairs[satisfied]

    def _remember_locked(self, condition: Condition, found: CachedPairs) -> None:
        before = self._remembered.pop(condition.key, None)
        self._remembered[condition.key] = found
        self._pairs += _size(condition.key, found) - (0 if before is None else _size(condition.key, before))
        while len(self._remembered) > REMEMBERED_MAX or self._pairs > PAIRS_MAX:
            self._pairs -= _size(*self._remembered.popitem(last=False))


def _size(key: Key, found: CachedPairs) -> int:
    _, text, _ = key
    return len(found.pairs) + len(text) // PAIR_BYTES


def _next_size(size: int, piece_s: float) -> int:
    """Size of the next piece, after a piece of `size` values took piece_s."""
    if piece_s < PIECE_S / 2:
        return min(size * 4, PIECE_MAX)
    return max(size // 2, PIECE_MIN) if piece_s > 2 * PIECE_S else size


@contextmanager
def _turn_of(spent_s: float, check_going: CheckGoing) -> Iterator[None]:
    """Hold the turn for one piece. A search that has taken SLOW_S waits until no other slow search runs."""
    if spent_s < SLOW_S:
        yield
        return
    while not _turn.acquire(timeout=TURN_S):
        check_going()
    try:
        yield
    finally:
        _turn.release()
