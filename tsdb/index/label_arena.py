"""Label arena: stores the labels of all series, each distinct (name, value) pair once.

A pair has a dense id, in the order of first use; a series is a run of pair ids. Nothing is ever removed: leftovers of
forgotten series go when the index copies the other series into a new arena. One writer thread, under the index's lock.
`labels`, taken under the lock, stays valid without it for the refs and pairs known at that time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsdb.index.interned import (
    InternedImage,
    enlarged,
    image_of,
    interned_of,
    known_ids,
    new_interned,
    starts_of,
    texts_of,
    with_capacity,
)
from tsdb.index.interned_kernels import COUNT, NOTHING, PADDING_BYTES
from tsdb.index.label_kernels import Labels, PairRuns, write_runs_kernel
from tsdb.index.label_read_kernels import (
    filter_kernel,
    join_labels_kernel,
    mark_pairs_kernel,
    pairs_by_name_kernel,
    prefix_kernel,
)
from tsdb.model.arrays import joined_ranges, total_bytes
from tsdb.model.labels import SEPARATOR

NO_PAIR = NOTHING


class LabelsImage(NamedTuple):
    """A label arena. seeds uint64[2]: seeds of the hashes of names and of pairs. entries: see PairRuns; the other
    arrays are by ref."""

    seeds: NDArray[np.uint64]
    names: InternedImage
    pairs: InternedImage
    name_of: NDArray[np.uint32]
    entries: NDArray[np.uint32]
    start: NDArray[np.uint32]
    length: NDArray[np.uint16]
    label_bytes: NDArray[np.uint32]


class LabelArena:
    """labels: the arrays that kernels take."""

    def __init__(self) -> None:
        # A random seed, so that no client can choose names that all share one slot.
        seed = np.uint64(int.from_bytes(os.urandom(8), "little"))
        entries, start, label_bytes, name_of = (np.empty(0, np.uint32) for _ in range(4))
        runs = PairRuns(np.zeros(1, np.int64), entries, start, np.empty(0, np.uint16), label_bytes)
        self.labels = Labels(new_interned(seed), new_interned(seed), name_of, runs)

    def image(self, refs_size: int) -> LabelsImage:
        """The labels of refs below refs_size. Arrays by ref are copied, because a reused ref is written again."""
        names, pairs, name_of, runs = self.labels
        return LabelsImage(
            np.array([names.seed, pairs.seed], np.uint64),
            image_of(names),
            image_of(pairs),
            name_of[: self.pair_count],
            runs.entries[: self.entry_count],
            runs.start[:refs_size].copy(),
            runs.length[:refs_size].copy(),
            runs.label_bytes[:refs_size].copy(),
        )

    @classmethod
    def of_image(cls, image: LabelsImage) -> LabelArena:
        """An arena that owns the arrays of an image."""
        arena = cls()
        size = np.array([len(image.entries)], np.int64)
        runs = PairRuns(size, image.entries, image.start, image.length, image.label_bytes)
        names, pairs = interned_of(image.names, image.seeds[0]), interned_of(image.pairs, image.seeds[1])
        arena.labels = Labels(names, pairs, image.name_of, runs)
        return arena

    @property
    def pair_count(self) -> int:
        """Number of pairs; ids are below it."""
        return int(self.labels.pairs.size[COUNT])

    @property
    def name_count(self) -> int:
        """Number of names; ids are below it."""
        return int(self.labels.names.size[COUNT])

    @property
    def entry_count(self) -> int:
        """Number of labels of all series."""
        return int(self.labels.runs.size[0])

    @property
    def nbytes(self) -> int:
        names, pairs, name_of, runs = self.labels
        return name_of.nbytes + total_bytes((*runs, *names[:-1], *pairs[:-1]))

    def reserve_refs(self, refs_size: int) -> None:
        """Enlarge the arrays for refs below refs_size. May replace `labels`."""
        runs = self.labels.runs
        start, length = enlarged(runs.start, refs_size), enlarged(runs.length, refs_size)
        label_bytes = enlarged(runs.label_bytes, refs_size)
        self.labels = self.labels._replace(runs=PairRuns(runs.size, runs.entries, start, length, label_bytes))

    def reserve_for(self, canonical: bytes) -> None:
        """Reserve capacity for one more set of labels, as has_room_kernel requires. Replaces `labels`."""
        more, more_bytes = canonical.count(SEPARATOR) // 2 + 1, len(canonical)
        names, pairs, name_of, runs = self.labels
        self.labels = Labels(
            with_capacity(names, more, more_bytes),
            with_capacity(pairs, more, more_bytes),
            enlarged(name_of, self.pair_count + more),
            runs._replace(entries=enlarged(runs.entries, self.entry_count + more)),
        )

    def write(self, refs: NDArray[np.uint32], joined: bytes, lengths: NDArray[np.uint32]) -> None:
        """Store the canonical labels of refs. They lie one after another in `joined`, `lengths` bytes each."""
        self.reserve_refs(int(refs.max(initial=0)) + 1)
        ends, data = np.cumsum(lengths, dtype=np.int64), np.frombuffer(joined, np.uint8)
        done = 0
        while (done := int(write_runs_kernel(self.labels, refs, ends, data, done))) < len(refs):
            start = int(ends[done - 1]) if done else 0
            self.reserve_for(joined[start : int(ends[done])])

    def pairs_of(self, name: bytes, values: Sequence[bytes]) -> NDArray[np.uint32]:
        """Ids of the known pairs of a name, one for each known value."""
        joined = b"".join(name + SEPARATOR + value for value in values)
        ends = np.cumsum([len(name) + len(SEPARATOR) + len(value) for value in values], dtype=np.int64)
        return known_ids(self.labels.pairs, joined, ends)

    def with_prefix(self, pairs: NDArray[np.uint32], prefix: bytes, more_min: int) -> NDArray[np.uint32]:
        """The pairs whose value begins with prefix and is at least more_min bytes longer."""
        out = np.empty(len(pairs), np.uint32)
        found = prefix_kernel(self.labels, pairs, np.frombuffer(prefix, np.uint8), more_min, out)
        return out[:found]

    def entries_of(self, refs: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """(pair, ref) of every label of refs."""
        runs = self.labels.runs
        lengths = runs.length[refs].astype(np.int64)
        return runs.entries[joined_ranges(runs.start[refs], lengths)], np.repeat(refs, lengths)

    def name_id(self, name: bytes) -> int:
        """Id of a label name, or NO_PAIR."""
        found = known_ids(self.labels.names, name, np.array([len(name)]))
        return int(found[0]) if len(found) else NO_PAIR

    def all_pairs_of(self, name: bytes, since: int = 0) -> NDArray[np.uint32]:
        """Ids of all pairs of a name, from the id `since` on, ascending."""
        if since == self.pair_count:
            return np.empty(0, np.uint32)
        known = self.labels.name_of[since : self.pair_count]
        return (np.flatnonzero(known == self.name_id(name)) + since).astype(np.uint32)

    def names(self) -> list[bytes]:
        """All names in the arena, by name id."""
        names = self.labels.names
        return texts_of(names, np.arange(int(names.size[COUNT])), 0)

    def values(self, pairs: NDArray[np.uint32]) -> list[bytes]:
        """The value of each pair."""
        labels = self.labels
        names = labels.name_of[pairs]
        name_bytes = labels.names.ends[names] - starts_of(labels.names, names)
        return texts_of(labels.pairs, pairs, name_bytes + len(SEPARATOR))

    def pair_texts(self, pairs: NDArray[np.uint32]) -> list[bytes]:
        """Name, separator and value of each pair."""
        return texts_of(self.labels.pairs, pairs, 0)

    def of(self, refs: NDArray[np.uint32]) -> tuple[bytes, NDArray[np.uint32]]:
        """(canonical labels of refs one after another, bytes of each)."""
        labels = self.labels
        lengths = labels.runs.label_bytes[refs]
        joined = np.empty(int(lengths.sum(dtype=np.int64)) + PADDING_BYTES, np.uint8)
        size = join_labels_kernel(labels, refs, joined)
        return joined[:size].tobytes(), lengths

    def bytes_of(self, refs: NDArray[np.uint32]) -> int:
        """Bytes of the canonical labels of refs together."""
        return int(self.labels.runs.label_bytes[refs].sum(dtype=np.int64))

    def pairs_by_name(self, refs: NDArray[np.uint32], names: Sequence[bytes]) -> NDArray[np.uint32]:
        """(len(names), len(refs)): the pair of each name that each ref has, NO_PAIR where it has none."""
        numbers = np.array([self.name_id(name) for name in names], np.uint32)
        out = np.full((len(names), len(refs)), NO_PAIR, np.uint32)
        pairs_by_name_kernel(self.labels, refs, numbers, out)
        return out

    def pairs_in(self, refs: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The distinct pairs that refs have, ascending."""
        marks = np.zeros(self.pair_count, np.bool_)
        mark_pairs_kernel(self.labels, refs, marks)
        return np.flatnonzero(marks).astype(np.uint32)

    def filter(self, refs: NDArray[np.uint32], pairs: NDArray[np.uint32], *, keep: bool) -> NDArray[np.uint32]:
        """The refs that have at least one of the pairs (keep), or have none (not keep), in order."""
        marks = np.zeros(self.pair_count, np.bool_)
        marks[pairs] = True
        out = np.empty(len(refs), np.uint32)
        return out[: filter_kernel(self.labels, refs, marks, keep, out)]
