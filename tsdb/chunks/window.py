"""Closed windows: the packs with samples in the head, when each pack is due, and the base chunks made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.chunks.records import ChunkRecord, chunk_records
from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.chunk.key import Kind
from tsdb.codec.chunk.marker import WindowMarker
from tsdb.head.head import Head
from tsdb.model.time_set import TimeSet

GATHER_SERIES = 2_048  # Series gathered at a time, in whole packs: bounds the memory of an emission.
_SHARE_BITS = 32


@dataclass(frozen=True, slots=True)
class Packs:
    """The packs of one window, ascending by id: pack p has refs[starts[p]:starts[p + 1]], ascending by series id."""

    ids: NDArray[np.uint64]
    starts: NDArray[np.int64]
    refs: NDArray[np.uint32]

    @property
    def count(self) -> int:
        return len(self.ids)


def packs_with_samples(head: Head, start_ms: int, end_ms: int) -> Packs:
    """The packs with samples in [start_ms, end_ms)."""
    refs = np.arange(head.index.refs_size, dtype=np.uint32)
    refs = refs[head.has_samples(refs, start_ms, end_ms)]
    pack_id, series_id = head.index.pack_of_ref[refs], head.index.id_of_ref[refs]
    order = np.lexsort((series_id, pack_id))
    ids, starts = np.unique(pack_id[order], return_index=True)
    return Packs(ids, np.append(starts, len(refs)).astype(np.int64), refs[order])


def base_fragments(
    head: Head, packs: Packs, first: int, last: int, start_ms: int, end_ms: int, decision_offset: int
) -> Iterator[Fragment]:
    """Collect all samples of the head in [start_ms, end_ms) for each of the packs [first, last), with order D - 1."""
    at, end = int(packs.starts[first]), int(packs.starts[last])
    refs = packs.refs[at:end]
    raw = head.gather_raw(refs, start_ms, end_ms)
    series_id = head.index.id_of_ref[refs]
    sample_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(raw.counts, dtype=np.int64)])
    order = np.full(raw.samples, decision_offset - 1, np.int64)
    whole = Fragment(0, start_ms, series_id, sample_start, raw.ts_ms, raw.values, order, raw.details)
    for pack in range(first, last):
        part = whole.part(int(packs.starts[pack]) - at, int(packs.starts[pack + 1]) - at)
        yield replace(part, pack_id=int(packs.ids[pack]))


@dataclass(frozen=True, slots=True)
class BaseRecords:
    """The base chunks of some packs. packs, samples: the numbers of both."""

    records: list[ChunkRecord]
    packs: int
    samples: int


class ClosedWindow:
    """The window [start_ms, start_ms + window) of one head, closed by the record at decision_offset.

    Its samples in the head do not change any more. Packs are emitted in order of their ids, which is also the order of
    their due times.
    """

    def __init__(self, head: Head, start_ms: int, decision_offset: int, times: TimeSet, part_bytes_max: int) -> None:
        self.start_ms = start_ms
        self.end_ms = start_ms + times.window_ms
        self.decision_offset = decision_offset
        self._head = head
        self._times = times
        self._part_bytes_max = part_bytes_max
        self._packs: Packs | None = None
        self._next = 0
        self._chunks = 0
        self._samples = 0

    @property
    def packs(self) -> Packs:
        """The packs of the window. The result is computed once, because it needs all time axes of the window."""
        if self._packs is None:
            self._packs = packs_with_samples(self._head, self.start_ms, self.end_ms)
        return self._packs

    @property
    def finished(self) -> bool:
        """Whether every pack was emitted."""
        return self._next == self.packs.count

    @property
    def marker(self) -> WindowMarker:
        """The marker of the finished window."""
        return WindowMarker(self.decision_offset, self.packs.count, self._chunks, self._samples)

    def due(self, now_ms: int) -> int:
        """Number of next packs that are due, at most within_bounds()."""
        due = int(np.searchsorted(due_times(self.packs.ids, self.end_ms, self._times), now_ms, side="right"))
        return min(due - self._next, self.within_bounds())

    def next_due_ms(self) -> int:
        """When `due` has the next pack; in the past where the window has none left."""
        if self.finished:
            return self.end_ms
        return int(due_times(self.packs.ids[self._next : self._next + 1], self.end_ms, self._times)[0])

    def within_bounds(self) -> int:
        """Number of next packs to take at a time: about GATHER_SERIES series, at least one pack."""
        starts = self.packs.starts
        if self.finished:
            return 0
        within = int(np.searchsorted(starts, starts[self._next] + GATHER_SERIES, side="right")) - 1
        return max(within - self._next, 1)

    def records(self, count: int) -> BaseRecords:
        """The base chunks of the next `count` packs. Repeatable: changes nothing until `emitted`."""
        made: list[ChunkRecord] = []
        samples = 0
        for fragment in base_fragments(
            self._head, self.packs, self._next, self._next + count, self.start_ms, self.end_ms, self.decision_offset
        ):
            samples += fragment.samples
            made += chunk_records(
                fragment,
                Kind.BASE,
                self.decision_offset,
                window_ms=self._times.window_ms,
                part_bytes_max=self._part_bytes_max,
                due_ms=self.end_ms + self._times.grace_ms,
            )
        return BaseRecords(made, count, samples)

    def emitted(self, base: BaseRecords) -> None:
        """Confirm that these records, of the next packs, are sent."""
        self._next += base.packs
        self._chunks += len(base.records)
        self._samples += base.samples


def due_times(pack_id: NDArray[np.uint64], window_end_ms: int, times: TimeSet) -> NDArray[np.int64]:
    """Due times of packs in ms. They lie within spread_ms after the window's end + grace; the pack id decides where."""
    share = (pack_id >> np.uint64(_SHARE_BITS)).astype(np.int64)
    return window_end_ms + times.grace_ms + (share * times.spread_ms >> _SHARE_BITS)
