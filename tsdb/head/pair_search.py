"""Pair search: the pairs of a label arena that a condition names, remembered per condition.

Ids only grow, so what was found stays found and only pairs newer than the last look are tried. `prepare` tries texts
outside the lock given here, the index's, because a regular expression over many values must not hold up the writer;
`find_locked`, which is given what was found, has then little left to do. Texts are tried a piece at a time: between two
pieces the reader's deadline is looked at, and slow searches take turns, so that together they use one core.
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

from tsdb.head.label_arena import LabelArena
from tsdb.head.matching import Condition, Key
from tsdb.head.pattern import Pattern

REMEMBERED_MAX = 256
PAIRS_MAX = 1 << 21  # 8 MiB of all conditions; the ones asked least lately go first.
ROUNDS_MAX = 4  # Of looking for pairs that came during the search before.
PIECE_MIN, PIECE_MAX = 16, 4096  # Values tried between two looks at the deadline.
PIECE_S = 0.01
SLOW_S = 0.05  # A search over as many values as indexes have mostly takes less.
TURN_S = 0.1  # How often one that waits for its turn looks at the deadline.

CheckGoing = Callable[[], None]
"""Raises when the work need not go on."""

_turn = threading.Lock()  # Held for a piece of a slow search. RE2 works without the GIL: all cores could be busy.


def go_on() -> None:
    """For work that nobody calls off."""


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs of a condition among the ids below `seen`."""

    seen: int
    pairs: NDArray[np.uint32]


NOTHING = Found(0, np.empty(0, np.uint32))


class PairSearch:
    """Searches one arena; a new arena wants a new search."""

    def __init__(self, arena: LabelArena, lock: threading.Lock) -> None:
        self._arena = arena
        self._lock = lock
        self._remembered: OrderedDict[Key, Found] = OrderedDict()
        self._pairs = 0

    @property
    def nbytes(self) -> int:
        """Memory of what is remembered."""
        return 4 * self._pairs

    def prepare(self, condition: Condition, check_going: CheckGoing = go_on) -> Found:
        """The condition's pairs among those known now. check_going: called between pieces."""
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

    def find_locked(self, condition: Condition, prepared: Found) -> NDArray[np.uint32]:
        """Ids of the pairs of the name whose value satisfies the pattern, or does not, as is wanted; ascending.

        prepared: of the same condition, lately.
        """
        if condition.is_look_up:
            return np.sort(self._arena.pairs_of(condition.name, condition.pattern.literals or ()))
        seen, fresh = self._left_locked(condition, prepared)
        return self._with(prepared, seen, fresh, condition, go_on).pairs

    def _left_locked(self, condition: Condition, found: Found) -> tuple[int, NDArray[np.uint32]]:
        """(up to where pairs are known, the pairs of the name that were not looked at)."""
        return self._arena.pair_count, self._arena.all_pairs_of(condition.name, found.seen)

    def _with(
        self, found: Found, seen: int, fresh: NDArray[np.uint32], condition: Condition, check_going: CheckGoing
    ) -> Found:
        return Found(seen, np.concatenate((found.pairs, self._matching(fresh, condition, check_going))))

    def _matching(self, pairs: NDArray[np.uint32], condition: Condition, check_going: CheckGoing) -> NDArray[np.uint32]:
        pattern = condition.pattern
        likely = pairs
        if pattern.literals is None:
            likely = self._arena.with_prefix(pairs, pattern.prefix, pattern.rest_bytes_min)
        if pattern.literals is not None or pattern.matcher is not None:
            likely = self._satisfying(likely, pattern, check_going)
        return likely if condition.wanted else np.setdiff1d(pairs, likely, assume_unique=True)

    def _satisfying(self, pairs: NDArray[np.uint32], pattern: Pattern, check_going: CheckGoing) -> NDArray[np.uint32]:
        """Those of pairs whose value the pattern matches."""
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

    def _remember_locked(self, condition: Condition, found: Found) -> None:
        before = self._remembered.pop(condition.key, NOTHING)
        self._remembered[condition.key] = found
        self._pairs += len(found.pairs) - len(before.pairs)
        while len(self._remembered) > REMEMBERED_MAX or self._pairs > PAIRS_MAX:
            _, oldest = self._remembered.popitem(last=False)
            self._pairs -= len(oldest.pairs)


def _next_size(size: int, piece_s: float) -> int:
    """Of the piece after one of `size` values that took piece_s."""
    if piece_s < PIECE_S / 2:
        return min(size * 4, PIECE_MAX)
    return max(size // 2, PIECE_MIN) if piece_s > 2 * PIECE_S else size


@contextmanager
def _turn_of(spent_s: float, check_going: CheckGoing) -> Iterator[None]:
    """Of a search that has taken spent_s so far: a slow one waits until no other slow one works."""
    if spent_s < SLOW_S:
        yield
        return
    while not _turn.acquire(timeout=TURN_S):
        check_going()
    try:
        yield
    finally:
        _turn.release()
