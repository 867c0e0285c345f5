"""Series index: finds the series of one partition, by id and by labels.

One writer thread registers, forgets and releases. Any thread reads. The index has a lock for table, postings and
caches. The writer has it for one batch of at most BATCH_SERIES series, and takes no other lock under it. A ref that a
read found keeps its id and labels until the writer calls `release_forgotten`.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.index.cardinality import NO_COUNTS, NO_REFS, By, IndexCardinality, counts_of
from tsdb.index.index_kernels import STATE_FREE, STATE_LIVE
from tsdb.index.label_arena import LabelsImage
from tsdb.index.label_index import BATCH_SERIES, LabelIndex
from tsdb.index.matching import Condition, Matchers, SelectCache, conditions_of
from tsdb.index.pair_search import CheckGoing, go_on
from tsdb.index.registration import Registered, register
from tsdb.index.series_rows import RowsImage, SeriesRows
from tsdb.index.series_table import SeriesIdTable
from tsdb.index.series_table_kernels import NO_REF
from tsdb.model.errors import Overloaded
from tsdb.model.selector import Matcher
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

Text = bytes  # The class has a method named `bytes`.

COMPACT_SERIES_MIN = 8192  # Fewer forgotten series are not worth a new label index.

log = get_logger(__name__)

conflicts_total = counter(
    "tsdb_index_label_conflicts_total", "Announcements refused because another label set has the same series id."
)
malformed_total = counter(
    "tsdb_index_malformed_labels_total", "Announcements refused because their labels are not canonical."
)
forgotten_total = counter("tsdb_index_forgotten_series_total", "Series that left the label index.")


class IndexImage(NamedTuple):
    """A series index at one moment, without its table and postings: they are built again from the rest, in bulk.

    forgotten_since_compaction: see SeriesIndex.forget.
    """

    rows: RowsImage
    labels: LabelsImage
    forgotten_since_compaction: int


class SeriesIndex:
    """Refs are dense uint32 from 0; refs of forgotten series are reused. Selected refs ascend by series_id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.table = SeriesIdTable()
        self._rows = SeriesRows()
        self._labels = LabelIndex(self._lock)
        self._selects = SelectCache()
        # Counts changes to the set of live series. A selection stays valid within one generation.
        self.generation = 0
        self._forgotten_since_compaction = 0

    @property
    def series(self) -> int:
        """Number of live series: the ones that reads find."""
        return len(self.table)

    @property
    def refs_size(self) -> int:
        """One past the highest ref ever used."""
        return self._rows.size

    @property
    def id_of_ref(self) -> NDArray[np.uint64]:
        """series_id by ref, at least refs_size long; registering may replace it."""
        return self._rows.columns.series_id

    @property
    def pack_of_ref(self) -> NDArray[np.uint64]:
        """pack_id by ref, as id_of_ref."""
        return self._rows.columns.pack_id

    def bytes(self) -> int:
        """Memory of the index, bitmaps estimated."""
        return self.table.nbytes + self._rows.nbytes + self._labels.nbytes + self._selects.nbytes

    # The writer thread.

    def register(self, records: DecodedAnnouncements, values: Text, broker_ms: NDArray[np.int64]) -> Registered:
        """Register announced series. Announcements whose status is not ok are skipped.

        values: the bytes that the label positions of records point into. broker_ms (m,): broker time of each
        announcement.

        """
        done = Registered()
        data = np.frombuffer(values, np.uint8)
        for start in range(0, len(records.status), BATCH_SERIES):
            with self._lock:
                part = slice(start, start + BATCH_SERIES)
                fresh = register(records, part, data, broker_ms, self.table, self._rows, self._labels, done)
                self.generation += bool(fresh)
        self._count(done, records)
        return done

    def expired(self, announced_before_ms: int, has_samples: NDArray[np.bool_]) -> NDArray[np.uint32]:
        """Live refs without samples whose last announcement is before a broker time. has_samples: bool by ref; refs
        past its end have no samples.
        """
        lasting = np.zeros(self.refs_size, np.bool_)
        known = min(len(has_samples), self.refs_size)
        lasting[:known] = has_samples[:known]
        columns = self._rows.columns
        quiet = columns.announced_ms[: self.refs_size] < announced_before_ms
        live = columns.state[: self.refs_size] == STATE_LIVE
        return np.flatnonzero(live & quiet & ~lasting).astype(np.uint32)

    def forget(self, refs: NDArray[np.uint32]) -> None:
        """Forget distinct live series: reads no longer find them. Their refs keep id and labels until released."""
        assert (self._rows.columns.state[refs] == STATE_LIVE).all(), "only live series can be forgotten, and once"
        for start in range(0, len(refs), BATCH_SERIES):
            part = refs[start : start + BATCH_SERIES]
            with self._lock:
                self.table.remove(self._rows.columns.series_id[part])
                self._labels.remove(part)
                self._rows.forget(part)
                self.generation += 1
        forgotten_total.inc(len(refs))
        self._forgotten_since_compaction += len(refs)
        if self._forgotten_since_compaction >= max(COMPACT_SERIES_MIN, self.series):
            self.compact()

    def release_forgotten(self) -> int:
        """Free the refs of forgotten series for new series. Returns their number.

        Call it when no read can hold refs from before their `forget`.
        """
        with self._lock:
            return self._rows.release()

    def layout_order(self, refs: NDArray[np.uint32]) -> NDArray[np.intp]:
        """The permutation that sorts refs as sealed slices lay them out: by metric family, placement, metric, ref."""
        return self._rows.layout_order(refs)

    def _count(self, done: Registered, records: DecodedAnnouncements) -> None:
        malformed_total.inc(done.malformed)
        conflicts_total.inc(done.conflicts)
        if done.conflict_at is not None:
            one = int(records.series_id[done.conflict_at])
            log.warning("label sets of a known series id refused", count=done.conflicts, series_id=f"{one:016x}")

    def compact(self) -> None:
        """Rebuild the label index without the labels of free refs. `forget` calls it when about half can be freed.

        Reads use the old label index meanwhile. Only the writer thread changes either of the two.
        """
        state = self._rows.columns.state[: self.refs_size]
        held = np.flatnonzero(state != STATE_FREE).astype(np.uint32)
        compacted = self._labels.compacted(held, state[held] == STATE_LIVE)
        with self._lock:
            self._labels = compacted
        self._forgotten_since_compaction = 0

    def image(self) -> IndexImage:
        """An image of the index now. It does not change with the index."""
        return IndexImage(
            self._rows.image(), self._labels.arena.image(self.refs_size), self._forgotten_since_compaction
        )

    def restore(self, image: IndexImage) -> None:
        """Restore the index of an image, whose arrays then belong to this index. Called before the first series or
        read."""
        assert not self.refs_size, "only an empty index can be restored"
        self._rows = SeriesRows.of(image.rows)
        live = self._live_locked()
        self.table = SeriesIdTable.of(image.rows.series_id[live], live)
        self._labels = LabelIndex.of_image(self._lock, image.labels, live)
        self._forgotten_since_compaction = image.forgotten_since_compaction
        self.generation += 1

    # Number of refs for each combination of values of these labels; "" for an absent label.

    def refs_of(self, series_ids: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Refs of the known ids among series_ids, each once."""
        with self._lock:
            refs = self.table.find(np.unique(series_ids))
        known: NDArray[np.uint32] = refs[refs != NO_REF]
        return known

    def series_ids_of(self, refs: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """series_id of each ref."""
        return self._rows.columns.series_id[refs]

    def labels_of(self, refs: NDArray[np.uint32]) -> tuple[Text, NDArray[np.uint32]]:
        """(canonical labels of refs one after another, bytes of each)."""
        return self._labels.arena.of(refs)

    def all_refs(self) -> NDArray[np.uint32]:
        """Refs of all live series; a shared, read-only array."""
        with self._lock:
            generation, known = self.generation, self._selects.get((), self.generation)
            live = self._live_locked() if known is None else known
        return live if known is not None else self._answer((), generation, live)

    def select(
        self,
        matchers: Sequence[Matcher],
        check_going: CheckGoing = go_on,
        conditions: Sequence[Condition] | None = None,
    ) -> NDArray[np.uint32]:
        """Refs of the series that satisfy all matchers (rules: tsdb.index.matching); a shared, read-only array.

        check_going: called between pieces of a long search; its errors pass through. conditions: the conditions of
        these matchers, for a caller that asks several indexes. Raises InvalidRequest: selector_too_broad,
        regex_too_large, regex_malformed, bad_matcher.
        """
        key = tuple(matchers)
        with self._lock:
            known = self._selects.get(key, self.generation)
        if known is not None and key:
            return known
        if conditions is None:
            conditions = conditions_of(key)
        while True:
            labels = self._labels
            prepared = labels.prepare(conditions, check_going)
            with self._lock:
                if labels is not self._labels:  # The index was compacted meanwhile, so the pair ids have changed.
                    continue
                generation = self.generation
                refs, steps = labels.combine_locked(conditions, prepared, self.series, self._live_locked)
            return self._answer(key, generation, labels.narrow(refs, steps))

    def label_names(self, matchers: Sequence[Matcher] | None = None, check_going: CheckGoing = go_on) -> list[str]:
        """Sorted label names of the selected series, or of all series without matchers. Raises as `select`."""
        labels, pairs = self._pairs(matchers, check_going)
        return labels.names_of(pairs)

    def label_values(
        self,
        name: str,
        matchers: Sequence[Matcher] | None = None,
        limit: int | None = None,
        check_going: CheckGoing = go_on,
    ) -> list[str]:
        """Sorted values of one label in the selected series, or in all series without matchers.

        Raises as `select`, and Overloaded (values_limit) when there are more than limit.
        """
        labels, pairs = self._pairs(matchers, check_going)
        pairs = labels.pairs_of_name(name, pairs)
        if limit is not None and len(pairs) > limit:
            raise Overloaded(
                f"label {name!r} has {len(pairs)} values; limit is {limit}: add matchers",
                reason="values_limit",
                limit=limit,
                asked=len(pairs),
            )
        return labels.values_of(pairs)

    def group_counts(self, names: Sequence[str], refs: NDArray[np.uint32]) -> Tally[tuple[str, ...]]:
        """Counts of the selected series by group; without matchers, of all series. Raises the errors of `select`."""
        return self._labels.group_counts(names, refs)

    def cardinality(
        self, by: By, matchers: Sequence[Matcher] | None, seed: int, check_going: CheckGoing = go_on
    ) -> IndexCardinality:
        """Counts of the selected series by group; of all series without matchers. Raises as `select`."""
        if by is not By.SOURCE and not matchers:
            with self._lock:
                return IndexCardinality(self._labels.arena, NO_REFS, self._labels.counts_locked(), seed, self.series)
        refs = self.select(matchers, check_going) if matchers else self.all_refs()
        # Read after the refs, so that it has the labels of all of them, even if the index was compacted in between.
        arena = self._labels.arena
        counts = NO_COUNTS if by is By.SOURCE else counts_of(arena, refs)
        return IndexCardinality(arena, refs, counts, seed, len(refs))

    def largest_groups(self, names: Sequence[str], limit: int) -> list[tuple[tuple[str, ...], int]]:
        """(values of these labels, series that have them) of the `limit` largest groups of all series."""
        return self._labels.largest_groups(names, self.all_refs(), limit)

    def label_bytes(self, refs: NDArray[np.uint32] | None = None) -> int:
        """Bytes of the canonical labels of refs, by default of all series. Each series counts in full."""
        return self._labels.arena.bytes_of(self.all_refs() if refs is None else refs)

    def _pairs(
        self, matchers: Sequence[Matcher] | None, check_going: CheckGoing
    ) -> tuple[LabelIndex, NDArray[np.uint32]]:
        """(label index, ids of the pairs in it that the selected series have)."""
        if not matchers:
            with self._lock:
                return self._labels, self._labels.pairs_in_use_locked()
        refs = self.select(matchers, check_going)
        labels = self._labels
        return labels, labels.arena.pairs_in(refs)

    def _live_locked(self) -> NDArray[np.uint32]:
        return np.flatnonzero(self._rows.columns.state[: self.refs_size] == STATE_LIVE).astype(np.uint32)

    def _answer(self, key: Matchers, generation: int, refs: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Sort refs by series_id and cache them."""
        ordered = refs[np.argsort(self._rows.columns.series_id[refs])]
        ordered.flags.writeable = False
        with self._lock:
            self._selects.put(key, generation, ordered)
        return ordered
