"""Selections: a cache of the series that each selector matches in the heads of a store, and of their samples.

A dashboard repeats the same selectors. A selection looks its series up once, and keeps them until a series comes or
goes. It gathers the sealed part of the answer once, and keeps it while the slices are the same: sealed slices never
change. Of the open samples it collects only new ones.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import (
    JOINED_SAMPLES_MAX,
    AnswerBody,
    AnswerSeries,
    JoinedSamples,
    PackedLabels,
    RawResult,
    SealedColumns,
)
from tsdb.answer.columns import Decoded, PartitionColumns, decode_partitions
from tsdb.answer.spec import SelectSpec
from tsdb.head.gather_many import ManyRefs, UnsealedCache
from tsdb.head.head import Head
from tsdb.head.slices.rows import SEALED_END, SEALED_START, Rows
from tsdb.head.slices.sealed_slice import SealedSlices
from tsdb.index.index import SeriesIndex
from tsdb.index.matching import conditions_of
from tsdb.model.selector import Matcher, chars_of
from tsdb.model.window import TIME_MAX_MS
from tsdb.ops.metrics import adder, counter, gauge
from tsdb.reader.read_call import NO_BOUNDS, ReadWork, SelectLimits

BYTES_MAX = 128 << 20
SELECTIONS_MAX = 1024
BLOCK_COPIES = 3  # Copies of labels while they are collected, split and serialized.
SPLIT_BYTES = 41  # Of a label set as an object, beside its bytes.
_NEVER_MS = -(1 << 62)  # A time before any range.

lookups_total = counter(
    "tsdb_store_selections_total",
    "Lookups of selectors, by whether their series were cached.",
    label="result",
    values=("hit", "miss"),
)
add_hit, add_miss = (adder(lookups_total.labels(result)) for result in ("hit", "miss"))
reserved_bytes = gauge("tsdb_store_selections_bytes", "Memory of cached selectors and their samples.")

Key = tuple[tuple[Matcher, ...], bool, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Touched:
    """The sealed slices that touch a range. They are neighbours, because slices ascend. rows: the rows of
    SealedSlices.sealed. Ranges that start in [start_from_ms, start_below_ms) and end in (end_above_ms, end_through_ms]
    touch the same slices.
    """

    rows: Rows
    start_from_ms: int
    start_below_ms: int
    end_above_ms: int
    end_through_ms: int

    @classmethod
    def by(cls, held: SealedSlices, start_ms: int, end_ms: int) -> Touched:
        """The slices that touch [start_ms, end_ms)."""
        starts, ends = held.sealed[:, SEALED_START], held.sealed[:, SEALED_END]
        first, last = int((ends <= start_ms).sum()), int((starts < end_ms).sum())
        if first >= last:  # The range touches no slice, and other ranges between the same two slices touch none either.
            before = int(ends[first - 1]) if first else _NEVER_MS
            after = int(starts[last]) if last < len(starts) else -_NEVER_MS
            return cls(held.sealed[:0], before, after, before, after)
        return cls(
            held.sealed[first:last],
            int(ends[first - 1]) if first else _NEVER_MS,
            int(ends[first]),
            int(starts[last - 1]),
            int(starts[last]) if last < len(starts) else -_NEVER_MS,
        )

    def touches_the_same(self, start_ms: int, end_ms: int) -> bool:
        """Whether a range touches exactly these slices."""
        return (
            self.start_from_ms <= start_ms < self.start_below_ms and self.end_above_ms < end_ms <= self.end_through_ms
        )


@dataclass(frozen=True, slots=True, eq=False)
class KeptColumns:
    """Columns of some slices of `held`, as read-only views. pieces: empty when no series has a sample there."""

    held: weakref.ref[SealedSlices]  # Weak: a cached answer must not keep slices in memory that the head has dropped.
    touched: Touched
    pieces: tuple[SealedColumns, ...]
    samples: int
    payload_bytes: int

    @classmethod
    def of(cls, held: SealedSlices, touched: Touched, columns: SealedColumns, *, copy: bool) -> KeptColumns:
        """copy: the arrays are views of larger ones, which these columns must not keep in memory."""
        kept = columns.copy() if copy else columns
        kept.freeze()
        pieces = (kept,) if len(kept.series_index) else ()
        return cls(weakref.ref(held), touched, pieces, kept.samples, kept.payload_bytes)

    def is_of(self, held: SealedSlices, start_ms: int, end_ms: int) -> bool:
        """Whether gathering [start_ms, end_ms) from these slices would give the same columns."""
        return self.held() is held and self.touched.touches_the_same(start_ms, end_ms)


@dataclass(slots=True, eq=False)
class HeadSelection:
    """The series that a selector matches in one head, at one generation of its index.

    refs: ascending by series_id. series_bytes: memory of ids and labels, packed and split. columns: the columns of an
    earlier answer.
    """

    index: SeriesIndex
    generation: int
    refs: NDArray[np.uint32]
    series: AnswerSeries
    series_bytes: int
    columns: KeptColumns | None = None

    @property
    def bytes(self) -> int:
        return self.refs.nbytes + self.series_bytes + (self.columns.payload_bytes if self.columns else 0)


@dataclass(slots=True, eq=False)
class Selection:
    """The series that a selector matches in several heads. refs: refs of all parts. unsealed: their open and late
    samples at the last read. body: the body of an earlier answer, and its inputs. decoded: the samples of few columns,
    and those columns. changed: whether it has changed since it was last remembered."""

    parts: list[HeadSelection]
    refs: ManyRefs
    unsealed: UnsealedCache | None = None
    body: tuple[Sequence[KeptColumns | None], RawResult, AnswerBody] | None = None
    decoded: tuple[Sequence[KeptColumns | None], Decoded] | None = None
    changed: bool = True

    @classmethod
    def of(cls, parts: list[HeadSelection]) -> Selection:
        """parts: one for each head."""
        return cls(parts, ManyRefs.of([part.refs for part in parts]))

    def keep(self, part: int, columns: KeptColumns | None) -> None:
        """Keep the columns of one part for later answers."""
        self.parts[part].columns = columns
        self.body = None
        self.changed = True

    def keep_unsealed(self, unsealed: UnsealedCache) -> None:
        """Keep the collected samples; the next read collects only newer ones."""
        if unsealed is not self.unsealed:
            self.unsealed = unsealed
            self.body = None
            self.changed = True

    def keep_body(self, columns: Sequence[KeptColumns | None], overlay: RawResult, body: AnswerBody) -> None:
        """Keep the body made of these columns and this overlay."""
        self.body = columns, overlay, body

    def joined(self, columns: Sequence[KeptColumns | None], overlay: RawResult) -> JoinedSamples | None:
        """The samples of all parts as one piece, decoded once; None where the columns have too many."""
        kept = self.decoded  # Read once, as `body`.
        if kept is None or kept[0] != columns:
            if not may_join(columns):
                return None
            kept = self.decoded = columns, _decoded(self.parts, columns)
            self.changed = True
        counts, ts_ms, values = kept[1]
        starts = np.zeros(len(counts) + 1, np.int64)
        counts.cumsum(out=starts[1:])
        return JoinedSamples(starts, ts_ms, values, overlay)

    def body_of(self, columns: Sequence[KeptColumns | None], overlay: RawResult) -> AnswerBody | None:
        """The kept body, if it was made of exactly these columns and this overlay; else None."""
        kept = self.body  # Read once: another read of the same selection may drop it.
        if kept is None:
            return None
        of_columns, of_overlay, body = kept
        return body if of_overlay is overlay and of_columns == columns else None

    @property
    def series_bytes(self) -> int:
        """Memory of ids and labels."""
        return sum([part.series_bytes for part in self.parts])

    @property
    def bytes(self) -> int:
        """Memory. `body` is not counted: it refers to the arrays of the other fields."""
        unsealed = self.unsealed.bytes if self.unsealed else 0
        decoded = sum([array.nbytes for array in self.decoded[1]]) if self.decoded else 0
        refs = self.refs.refs.nbytes + self.refs.ends.nbytes
        return refs + unsealed + decoded + sum([part.bytes for part in self.parts])


class Selections:
    """The most recently used selections, bounded by bytes. Thread-safe."""

    def __init__(self, *, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._held: OrderedDict[Key, tuple[Selection, int]] = OrderedDict()  # Selections with their bytes.
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Memory of all remembered selections."""
        return self._bytes

    def select(
        self, heads: Sequence[Head], query: SelectSpec, limits: SelectLimits, work: ReadWork = NO_BOUNDS
    ) -> Selection:
        """The series that the query matches in these heads. Raises as SeriesIndex.select; Overloaded (series_limit)."""
        if query.series_ids is not None:
            return self._by_ids(heads, query, limits, work)
        key = _key(heads, query)
        with self._lock:
            before, _ = self._held.get(key, (None, 0))
            if before is not None:
                self._held.move_to_end(key)
        if before is not None and _is_current(before, heads):
            add_hit(1)
            limits.check_series(len(before.refs.refs))
            return before
        add_miss(1)
        # The generation is read before the search: a change during the search makes the next query search again.
        conditions = conditions_of(query.matchers)
        found = [
            (head.index.generation, head.index.select(query.matchers, work.check_going, conditions)) for head in heads
        ]
        limits.check_series(sum(len(refs) for _, refs in found))
        if query.labels:
            work.hold(
                BLOCK_COPIES * sum(head.index.label_bytes(refs) for head, (_, refs) in zip(heads, found, strict=True))
            )
        known = [None] * len(heads) if before is None else before.parts
        return Selection.of(
            [
                _selected(head, generation, refs, part, labels=query.labels)
                for head, (generation, refs), part in zip(heads, found, known, strict=True)
            ]
        )

    def has_current(self, heads: Sequence[Head], query: SelectSpec) -> bool:
        """Whether the series of a query are known, so that `select` searches for none."""
        with self._lock:
            known, _ = self._held.get(_key(heads, query), (None, 0))
        return known is not None and _is_current(known, heads)

    def remember(self, heads: Sequence[Head], query: SelectSpec, selection: Selection) -> None:
        """Keep a selection, with the current columns of its parts, for later reads."""
        if query.series_ids is not None or not selection.changed:
            return
        selection.changed, size = False, selection.bytes + chars_of(query.matchers)
        if size > self._bytes_max // 2:
            return  # It would evict all others.
        key = _key(heads, query)
        with self._lock:
            _, before = self._held.pop(key, (None, 0))
            self._held[key] = selection, size
            self._bytes += size - before
            while self._bytes > self._bytes_max or len(self._held) > SELECTIONS_MAX:
                _, (_, oldest) = self._held.popitem(last=False)
                self._bytes -= oldest
            reserved_bytes.set(self._bytes)

    def _by_ids(self, heads: Sequence[Head], query: SelectSpec, limits: SelectLimits, work: ReadWork) -> Selection:
        assert query.series_ids is not None
        found = [(head, head.index.refs_of(query.series_ids)) for head in heads]
        limits.check_series(sum(len(refs) for _, refs in found))
        if query.labels:
            work.hold(BLOCK_COPIES * sum(head.index.label_bytes(refs) for head, refs in found))
        return Selection.of([_selected(head, -1, refs, None, labels=query.labels) for head, refs in found])


def _is_current(selection: Selection, heads: Sequence[Head]) -> bool:
    """Whether no series came or went in any of the heads since the series were selected."""
    for part, head in zip(selection.parts, heads, strict=True):
        if part.index is not head.index or part.generation != head.index.generation:
            return False
    return True


def _key(heads: Sequence[Head], query: SelectSpec) -> Key:
    return query.matchers, query.labels, tuple([head.partition for head in heads])


def _selected(
    head: Head, generation: int, refs: NDArray[np.uint32], before: HeadSelection | None, *, labels: bool
) -> HeadSelection:
    ids = head.index.series_ids_of(refs)
    # The generation changed because of other series: the same refs of the same series have the same columns.
    if (
        before is not None
        and before.index is head.index
        and np.array_equal(before.refs, refs)
        and np.array_equal(before.series.series_ids, ids)
    ):
        return replace(before, generation=generation)
    packed, split_bytes = None, 0
    if labels:
        joined, lengths = head.index.labels_of(refs)
        packed = PackedLabels(bytes(joined), lengths)
        split_bytes = 2 * packed.nbytes + SPLIT_BYTES * len(lengths)
    series = AnswerSeries(head.partition, ids, packed)
    return HeadSelection(head.index, generation, refs, series, ids.nbytes + split_bytes)


def may_join(columns: Sequence[KeptColumns | None]) -> bool:
    """Whether columns are few enough to be kept decoded, so that a reader trims them together with their overlay."""
    return sum([one.samples for one in columns if one is not None]) <= JOINED_SAMPLES_MAX


def _decoded(parts: Sequence[HeadSelection], columns: Sequence[KeptColumns | None]) -> Decoded:
    """All samples of these columns, for the series of all parts, one part after another."""
    return decode_partitions(
        [
            PartitionColumns(len(part.series), () if of_part is None else of_part.pieces, ())
            for part, of_part in zip(parts, columns, strict=True)
        ],
        -TIME_MAX_MS,
        TIME_MAX_MS,
    )
