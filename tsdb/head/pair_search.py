"""Pair search: the pairs of a label arena that a condition names, remembered per condition.

Ids only grow, so what was found stays found and only pairs newer than the last look are tried. `prepare` tries texts
outside the lock given here, the index's, because a regular expression over many values must not hold up the writer;
`find_locked` has then little left to do.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.head.label_arena import LabelArena
from tsdb.head.matching import Condition, Key

REMEMBERED_MAX = 256
PAIRS_MAX = 1 << 21  # 8 MiB of all conditions; the ones asked least lately go first.


@dataclass(frozen=True, slots=True)
class _Found:
    """Pairs of a condition among the ids below `seen`."""

    seen: int
    pairs: NDArray[np.uint32]


_NOTHING = _Found(0, np.empty(0, np.uint32))


class PairSearch:
    """Searches one arena; a new arena wants a new search."""

    def __init__(self, arena: LabelArena, lock: threading.Lock) -> None:
        self._arena = arena
        self._lock = lock
        self._remembered: OrderedDict[Key, _Found] = OrderedDict()
        self._pairs = 0

    @property
    def nbytes(self) -> int:
        """Memory of what is remembered."""
        return 4 * self._pairs

    def prepare(self, condition: Condition) -> None:
        """Look for the condition's pairs among those known now."""
        if condition.is_look_up:
            return
        with self._lock:
            before, seen, fresh = self._left_locked(condition)
        found = _Found(seen, np.concatenate((before.pairs, self._matching(fresh, condition))))
        with self._lock:
            self._remember_locked(condition, found)

    def find_locked(self, condition: Condition) -> NDArray[np.uint32]:
        """Ids of the pairs of the name whose value satisfies the pattern, or does not, as is wanted; ascending."""
        if condition.is_look_up:
            return np.sort(self._arena.pairs_of(condition.name, condition.pattern.literals or ()))
        before, seen, fresh = self._left_locked(condition)
        found = _Found(seen, np.concatenate((before.pairs, self._matching(fresh, condition))))
        self._remember_locked(condition, found)
        return found.pairs

    def _left_locked(self, condition: Condition) -> tuple[_Found, int, NDArray[np.uint32]]:
        """(what is remembered, up to where pairs are known, the pairs of the name not looked at)."""
        before = self._remembered.get(condition.key, _NOTHING)
        return before, self._arena.pair_count, self._arena.all_pairs_of(condition.name, before.seen)

    def _matching(self, pairs: NDArray[np.uint32], condition: Condition) -> NDArray[np.uint32]:
        pattern = condition.pattern
        likely = pairs
        if pattern.literals is None:
            likely = self._arena.with_prefix(pairs, pattern.prefix, pattern.rest_bytes_min)
        if pattern.literals is not None or pattern.matcher is not None:
            satisfied = [pattern.matches(value) for value in self._arena.values(likely)]
            likely = likely[np.array(satisfied, np.bool_)]
        return likely if condition.wanted else np.setdiff1d(pairs, likely, assume_unique=True)

    def _remember_locked(self, condition: Condition, found: _Found) -> None:
        before = self._remembered.pop(condition.key, _NOTHING)
        self._remembered[condition.key] = found
        self._pairs += len(found.pairs) - len(before.pairs)
        while len(self._remembered) > REMEMBERED_MAX or self._pairs > PAIRS_MAX:
            _, oldest = self._remembered.popitem(last=False)
            self._pairs -= len(oldest.pairs)
