"""Label index: maps the series of one partition both ways, refs to labels and labels to refs.

Methods that end in _locked need the index's lock, and so do `add` and `remove`. The others read data that never changes
for a ref that the caller holds. Entries never move: `compacted` makes a new label index of the refs still needed.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.index.label_arena import NO_PAIR, LabelArena, LabelsImage
from tsdb.index.matching import Condition, ResolvedCondition, combine, narrow
from tsdb.index.pair_search import CachedPairs, CheckGoing, PairSearch
from tsdb.index.postings import Postings

BATCH_SERIES = 4096  # The size bounds how long a read waits for the lock.


class LabelIndex:
    """Arena, postings and the search over the arena's pairs."""

    def __init__(self, lock: threading.Lock, arena: LabelArena | None = None) -> None:
        self._lock = lock
        self.arena = arena or LabelArena()
        self._postings = Postings()
        self._search = PairSearch(self.arena, lock)

    @property
    def nbytes(self) -> int:
        """Bytes of memory; the share of the bitmaps is estimated."""
        return self.arena.nbytes + self._postings.nbytes + self._search.nbytes

    def add(self, refs: NDArray[np.uint32]) -> None:
        """Make refs findable by their labels, which are already in the arena."""
        self._postings.add(*self.arena.entries_of(refs), self.arena.pair_count)

    def remove(self, refs: NDArray[np.uint32]) -> None:
        """Make refs unfindable. Their labels stay in the arena."""
        self._postings.remove(*self.arena.entries_of(refs))

    def compacted(self, refs: NDArray[np.uint32], findable: NDArray[np.bool_]) -> LabelIndex:
        """A new label index of these refs. findable: bool (len(refs),), the refs that reads find."""
        fresh = LabelIndex(self._lock)
        for start in range(0, len(refs), BATCH_SERIES):
            part = slice(start, start + BATCH_SERIES)
            fresh.arena.write(refs[part], *self.arena.of(refs[part]))
            fresh.add(refs[part][findable[part]])
        return fresh

    @classmethod
    def of_image(cls, lock: threading.Lock, image: LabelsImage, findable: NDArray[np.uint32]) -> LabelIndex:
        """The label index of an image. findable: refs that reads find."""
        fresh = cls(lock, LabelArena.of_image(image))
        # In batches, because one large batch would leave arrays with much unused capacity. At least one batch: a read
        # looks up pairs of the arena even when no ref can be found.
        for start in range(0, max(len(findable), 1), BATCH_SERIES):
            fresh.add(findable[start : start + BATCH_SERIES])
        return fresh

    def prepare(self, conditions: Sequence[Condition], check_going: CheckGoing) -> list[CachedPairs]:
        """The long part of finding pairs, without the lock. check_going: called between pieces, and may raise."""
        return [self._search.prepare(condition, check_going) for condition in conditions]

    def combine_locked(
        self,
        conditions: Sequence[Condition],
        prepared: Sequence[CachedPairs],
        series: int,
        live: Callable[[], NDArray[np.uint32]],
    ) -> tuple[NDArray[np.uint32], list[ResolvedCondition]]:
        """See tsdb.index.matching.combine. prepared: a recent result of `prepare` for these conditions."""
        steps = [
            ResolvedCondition(self._search.find_locked(condition, found), condition.keep)
            for condition, found in zip(conditions, prepared, strict=True)
        ]
        return combine(steps, self._postings, series, live)

    def narrow(self, refs: NDArray[np.uint32], steps: Sequence[ResolvedCondition]) -> NDArray[np.uint32]:
        return narrow(refs, steps, self.arena)

    def pairs_in_use_locked(self) -> NDArray[np.uint32]:
        """Pairs that any findable ref has, ascending."""
        return np.flatnonzero(self._postings.counts()).astype(np.uint32)

    def counts_locked(self) -> NDArray[np.uint32]:
        """How many findable refs have each pair, by pair id; a copy."""
        return self._postings.counts().copy()

    def names_of(self, pairs: NDArray[np.uint32]) -> list[str]:
        """Sorted names of pairs."""
        used = np.bincount(self.arena.labels.name_of[pairs])
        names = self.arena.names()
        return sorted(_text(names[number]) for number in np.flatnonzero(used))

    def pairs_of_name(self, name: str, pairs: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The pairs that have this name."""
        of_name: NDArray[np.uint32] = pairs[self.arena.labels.name_of[pairs] == self.arena.name_id(_bytes(name))]
        return of_name

    def values_of(self, pairs: NDArray[np.uint32]) -> list[str]:
        """Sorted values of pairs of one name, "" left out."""
        return sorted([value.decode(errors="replace") for value in self.arena.values(pairs) if value])

    def group_counts(self, names: Sequence[str], refs: NDArray[np.uint32]) -> Tally[tuple[str, ...]]:
        """Number of refs for each combination of values of `names`; "" for an absent label."""
        columns = self.arena.pairs_by_name(refs, [_bytes(name) for name in names])
        groups, counts = _distinct(columns)
        texts = [self._texts_of(column) for column in groups]
        tally: Tally[tuple[str, ...]] = Tally()
        for number, count in enumerate(counts.tolist()):
            tally[tuple(column[number] for column in texts)] += count
        return tally

    def largest_groups(
        self, names: Sequence[str], refs: NDArray[np.uint32], limit: int
    ) -> list[tuple[tuple[str, ...], int]]:
        """The `limit` largest of group_counts, largest first. Only these are decoded to text."""
        groups, counts = _distinct(self.arena.pairs_by_name(refs, [_bytes(name) for name in names]))
        largest = np.argsort(-counts, kind="stable")[:limit]
        texts = [self._texts_of(column) for column in groups[:, largest]]
        return list(zip(zip(*texts, strict=True), counts[largest].tolist(), strict=True))

    def _texts_of(self, pairs: NDArray[np.uint32]) -> list[str]:
        known = pairs != NO_PAIR
        texts = np.full(len(pairs), "", object)
        texts[known] = [_text(value) for value in self.arena.values(pairs[known])]
        return list(texts)


def _distinct(columns: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """(the distinct columns of an (n, m) table, how often each occurs)."""
    code = np.zeros(columns.shape[1], np.int64)
    for row in columns:
        values, number = np.unique(row, return_inverse=True)
        # Codes stay dense, so their product with the number of values stays far from 64 bits.
        _, code = np.unique(code * len(values) + number, return_inverse=True)
    _, first, counts = np.unique(code, return_index=True, return_counts=True)
    return columns[:, first], counts


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def _text(text: bytes) -> str:
    return text.decode(errors="replace")
