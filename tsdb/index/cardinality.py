"""Cardinality: counts from the index how many series share a metric name, a label, a label pair, or a source.

Groups are known by a seeded 64-bit hash of their bytes, so that the groups of several indexes merge as arrays. Only the
groups that are shown become text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from tsdb.index.label_arena import NO_PAIR, LabelArena
from tsdb.index.label_read_kernels import count_pairs_kernel, hash_families_kernel, hash_interned_kernel
from tsdb.model.labels import METRIC_NAME, SEPARATOR
from tsdb.model.placement import metric_family

_FAMILY_SALT = np.uint64(0x9E3779B97F4A7C15)  # A family is never the same group as a value of a placement label.
_FOLD = np.uint64(0xD6E8FEB86659FD93)
NO_REFS = NO_COUNTS = np.empty(0, np.uint32)


class By(Enum):
    """The kind of a group. A source is a set of values of the placement labels, or a metric family without these
    labels."""

    METRIC = "metric"
    LABEL = "label"
    PAIR = "pair"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Groups:
    """n groups, in no order. hashes: uint64 (n,), distinct. series: int64 (n,).

    owners: uint64 (n,), hash of the label's name; only by label, where a group is one value.
    """

    hashes: NDArray[np.uint64]
    series: NDArray[np.int64]
    owners: NDArray[np.uint64] | None = None


class IndexCardinality:
    """The groups of some series of one index, at one time.

    refs: the series; only by source. counts: uint32 (pairs,), number of these series by pair id; not by source. seed:
    seed of the hashes. series: number of series.
    """

    def __init__(
        self,
        arena: LabelArena,
        refs: NDArray[np.uint32],
        counts: NDArray[np.uint32],
        seed: int,
        series: int,
    ) -> None:
        self.series = series
        self._arena = arena
        self._refs = refs
        self._counts = counts
        self._seed = np.uint64(seed)
        self._counted: tuple[NDArray[np.uint64], NDArray[np.intp], NDArray[np.int64]] | None = None

    def groups(self, by: By, placement_labels: Sequence[str]) -> Groups:
        """All groups of one kind; a value without series makes no group."""
        if by is By.SOURCE:
            hashes, _, series = self._sources(placement_labels)
            return Groups(hashes, series)
        pairs = self._pairs(by)
        owners = self._name_hashes()[self._arena.labels.name_of[pairs]] if by is By.LABEL else None
        return Groups(self._pair_hashes(pairs), self._counts[pairs].astype(np.int64), owners)

    def names(self, by: By, placement_labels: Sequence[str], wanted: NDArray[np.uint64]) -> dict[int, bytes]:
        """Canonical labels of those groups in `wanted` that this index has; by label, only the name of the label."""
        if by is By.SOURCE:
            return self._source_names(placement_labels, wanted)
        if by is By.LABEL:
            hashes, names = self._name_hashes(), self._arena.names()
            found = np.flatnonzero(np.isin(hashes, wanted))
            return {int(hashes[number]): names[number] for number in found.tolist()}
        pairs = self._pairs(by)
        hashes = self._pair_hashes(pairs)
        shown = np.flatnonzero(np.isin(hashes, wanted))
        texts = self._arena.pair_texts(pairs[shown])
        return dict(zip(hashes[shown].tolist(), texts, strict=True))

    def _pairs(self, by: By) -> NDArray[np.uint32]:
        pairs = np.flatnonzero(self._counts).astype(np.uint32)
        if by is By.METRIC:
            pairs = pairs[self._arena.labels.name_of[pairs] == self._arena.name_id(METRIC_NAME)]
        return pairs

    def _pair_hashes(self, pairs: NDArray[np.uint32]) -> NDArray[np.uint64]:
        out = np.empty(len(pairs), np.uint64)
        hash_interned_kernel(self._arena.labels.pairs, pairs, self._seed, out)
        return out

    def _name_hashes(self) -> NDArray[np.uint64]:
        """Hash of each name, uint64 (names,), by name id."""
        numbers = np.arange(self._arena.name_count, dtype=np.uint32)
        out = np.empty(len(numbers), np.uint64)
        hash_interned_kernel(self._arena.labels.names, numbers, self._seed, out)
        return out

    def _sources(
        self, placement_labels: Sequence[str]
    ) -> tuple[NDArray[np.uint64], NDArray[np.intp], NDArray[np.int64]]:
        """(hash of each source, index of one of its refs, number of its series). Computed once."""
        if self._counted is None:
            hashes = self._source_hashes(placement_labels)
            found, first, series = np.unique(hashes, return_index=True, return_counts=True)
            self._counted = found, first, series.astype(np.int64)
        return self._counted

    def _source_hashes(self, placement_labels: Sequence[str]) -> NDArray[np.uint64]:
        """uint64 (refs,), by source."""
        columns = self._columns(self._refs, placement_labels)
        hashes = np.zeros(columns.shape[1], np.uint64)
        for column in columns[:-1]:
            used, place = np.unique(column, return_inverse=True)
            known = used != NO_PAIR
            values = np.zeros(len(used), np.uint64)
            values[known] = self._pair_hashes(used[known])
            hashes = (hashes * _FOLD) ^ values[place]
        placed = (columns[:-1] != NO_PAIR).any(axis=0)
        names, place = np.unique(columns[-1][~placed], return_inverse=True)
        families = np.zeros(len(names), np.uint64)
        known = names != NO_PAIR
        families[known] = self._family_hashes(names[known])
        hashes[~placed] = (families ^ _FAMILY_SALT)[place]
        return hashes

    def _family_hashes(self, pairs: NDArray[np.uint32]) -> NDArray[np.uint64]:
        out = np.empty(len(pairs), np.uint64)
        hash_families_kernel(self._arena.labels, pairs, self._seed, out)
        return out

    def _source_names(self, placement_labels: Sequence[str], wanted: NDArray[np.uint64]) -> dict[int, bytes]:
        hashes, first, _ = self._sources(placement_labels)
        shown = np.flatnonzero(np.isin(hashes, wanted))
        columns = self._columns(self._refs[first[shown]], placement_labels)
        return {
            int(hashes[group]): self._source_text(columns[:, number]) for number, group in enumerate(shown.tolist())
        }

    def _source_text(self, column: NDArray[np.uint32]) -> bytes:
        placed = column[:-1][column[:-1] != NO_PAIR]
        if len(placed):
            return SEPARATOR.join(sorted(self._arena.pair_texts(placed)))
        names = self._arena.values(column[-1:][column[-1:] != NO_PAIR])
        return METRIC_NAME + SEPARATOR + metric_family(names[0]) if names else b""

    def _columns(self, refs: NDArray[np.uint32], placement_labels: Sequence[str]) -> NDArray[np.uint32]:
        """Pairs of each ref: one row for each placement label, and the metric name as the last row."""
        names = [name.encode(errors="replace") for name in placement_labels]
        return self._arena.pairs_by_name(refs, [*names, METRIC_NAME])


def counts_of(arena: LabelArena, refs: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """How many of refs have each pair, by pair id."""
    counts = np.zeros(arena.pair_count, np.uint32)
    count_pairs_kernel(arena.labels, refs, counts)
    return counts
