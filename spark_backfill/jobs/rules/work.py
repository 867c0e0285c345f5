"""Work: evaluate components of rules over a stretch of time, and write the samples that differ. Runs in tasks; safe to
repeat: the run's own chunks are not read, so a repeated task writes the same keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.rules.storage import SAMPLES_MAX, HistoryStorage
from spark_backfill.places import Places
from spark_backfill.writing.appender import TaskAppender
from spark_backfill.writing.chunk_writer import ChunkWriter, Written
from spark_backfill.writing.fragments import SortedRows
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.interface import ChunkStore
from tsdb.log.interface import SERIES
from tsdb.model.arrays import joined_ranges
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import LabelLimits, canonical_labels, normalize_labels, series_id
from tsdb.model.meta import MetaSettings
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.window import floor_to, index_epoch
from tsdb.promql.evaluate.query import QueryOptions
from tsdb.promql.syntax.features import features_named
from tsdb.rules.alerts import Labels
from tsdb.rules.backfill import BackfillCounts, BackfillOptions, begun
from tsdb.rules.columns import ResultColumns
from tsdb.rules.dependencies import RuleComponent, components_of
from tsdb.rules.files import RuleGroup, parse_rules

BLOCK_WINDOWS = 6  # A block reads one window before its own, for ranges and lookback: a sixth more.

RuleName = tuple[str, str, str]  # File, group and name.


@dataclass(frozen=True, slots=True)
class RuleTexts:
    """Rule files with the settings of a ruler. files: (name, bytes). Parsed in workers, because trees are larger."""

    files: tuple[tuple[str, bytes], ...]
    features: tuple[str, ...] = ()
    interval_ms: int = 60_000
    query_offset_ms: int = 0
    lookback_ms: int = 300_000
    series_max: int = 100_000
    external_labels: tuple[tuple[str, str], ...] = ()
    external_url: str = ""

    def groups(self) -> list[RuleGroup]:
        """All groups. Raises DocumentError."""
        features = features_named(frozenset(self.features))
        return [
            group
            for name, data in self.files
            for group in parse_rules(data, name, interval_ms=self.interval_ms, features=features).groups
        ]

    def components(self) -> list[RuleComponent]:
        """Raises DocumentError, InvalidRequest."""
        return components_of(self.groups(), self.lookback_ms)

    def options(self) -> BackfillOptions:
        """The options of evaluations, which are those of a ruler."""
        query = QueryOptions(
            features=features_named(frozenset(self.features)),
            lookback_ms=self.lookback_ms,
            delays_name_removal="promql-delayed-name-removal" in self.features,
        )
        labels = dict(self.external_labels)
        return BackfillOptions(query, self.query_offset_ms, self.series_max, labels, self.external_url)


@dataclass(frozen=True, slots=True)
class RulesItem:
    """Components, by number, over sample times [start_ms, end_ms). Both are starts of windows, but for the ends of the
    run."""

    components: tuple[int, ...]
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class RulesCounts:
    """evaluations: rules at steps. results: samples that the rules give. written: those that differ from what was
    stored. refused: samples with labels that no series may have. announced: records of series. failures, errors: by
    rule."""

    evaluations: int = 0
    results: int = 0
    refused: int = 0
    announced: int = 0
    written: Written = field(default_factory=Written)
    failures: Mapping[RuleName, int] = field(default_factory=dict)
    errors: Mapping[RuleName, str] = field(default_factory=dict)

    def plus(self, other: RulesCounts) -> RulesCounts:
        """The sum of both counts."""
        names = self.failures.keys() | other.failures.keys()
        return RulesCounts(
            self.evaluations + other.evaluations,
            self.results + other.results,
            self.refused + other.refused,
            self.announced + other.announced,
            self.written.plus(other.written),
            {name: self.failures.get(name, 0) + other.failures.get(name, 0) for name in names},
            {**other.errors, **self.errors},
        )


@dataclass(frozen=True, slots=True)
class RulesTask:
    """A function that Spark sends to tasks. orders: offset of the run's tick, by partition. writes: False: count what
    differs, and write nothing. start_ms: start of the run."""

    places: Places
    shared: MetaSettings
    texts: RuleTexts
    topic_id: str
    orders: Mapping[int, int]
    start_ms: int
    writes: bool
    samples_max: int = SAMPLES_MAX

    def __call__(self, items: Iterable[RulesItem]) -> Iterator[RulesCounts]:
        """Yield the counts of each item."""
        found = list(items)
        if not found:
            return
        with quoted_errors(), self.places.open_history() as history:
            components = _components(self.texts)
            for item in found:
                yield self._evaluate(item, components, history)

    def _evaluate(self, item: RulesItem, components: Sequence[RuleComponent], history: ChunkStore) -> RulesCounts:
        work = _Item(self, item, components, history)
        if not self.writes:
            written = Written()
            for rows in work.rows(None):
                written = written.plus(Written(len(rows), len(rows)))
            return work.counts(written)
        times = self.shared.time_set
        writer = ChunkWriter(self.places, self.orders, times.window_ms, self.shared.part_bytes_max)
        with self.places.open_log() as log:
            return work.counts(writer.write(work.rows(TaskAppender(log, SERIES))))


@lru_cache(maxsize=1)
def _components(texts: RuleTexts) -> Sequence[RuleComponent]:
    """The components of a run. A worker has many of its tasks, and parsing 1,000 rules takes longer than one task."""
    return texts.components()


@dataclass(frozen=True, slots=True)
class _PlacedSeries:
    series_id: int
    pack_id: int
    partition: int
    canonical: bytes


class _Item:
    def __init__(
        self, task: RulesTask, item: RulesItem, components: Sequence[RuleComponent], history: ChunkStore
    ) -> None:
        self._task = task
        self._item = item
        self._window_ms = task.shared.time_set.window_ms
        self._rule = PlacementRule(task.shared.placement_labels)
        self._storage = HistoryStorage(history, task.topic_id, task.orders, self._window_ms, task.samples_max)
        options = task.texts.options()
        self._runs = [
            (number, begun(components[number], self._storage, options, task.start_ms, item.start_ms))
            for number in item.components
        ]
        self._placed: dict[Labels, _PlacedSeries | None] = {}
        self._announced: set[tuple[int, int]] = set()
        self._refused = 0

    def rows(self, announcer: TaskAppender | None) -> Iterator[SortedRows]:
        """The rows to write, in the order that the chunk writer needs. Their series are announced before."""
        for end_ms in self._ends():
            for number, run in self._runs:
                rows = self._sorted(number, run.block(end_ms), announcer)
                if rows is not None:
                    yield rows

    def counts(self, written: Written) -> RulesCounts:
        total = BackfillCounts()
        for _, run in self._runs:
            total.add(run.counts)
        announced = len(self._announced)
        return RulesCounts(
            total.evaluations, total.results, self._refused, announced, written, total.failures, total.errors
        )

    def _ends(self) -> Iterator[int]:
        """Ends of blocks: starts of windows, and the end of the item."""
        length_ms = BLOCK_WINDOWS * self._window_ms
        end_ms = floor_to(self._item.start_ms, self._window_ms) + length_ms
        while end_ms < self._item.end_ms:
            yield end_ms
            end_ms += length_ms
        yield self._item.end_ms

    def _sorted(self, number: int, found: ResultColumns, announcer: TaskAppender | None) -> SortedRows | None:
        placed, parts = [], []
        for labels, ts_ms, values in found.rows():
            one = self._place(labels)
            if one is None:
                self._refused += len(ts_ms)
                continue
            placed.append(one)
            parts.append((ts_ms, values))
            if announcer is not None:
                self._announce(announcer, one, int(ts_ms[0]), int(ts_ms[-1]))
        if not placed:
            return None
        if announcer is not None:
            announcer.finish()
        return _sorted_rows(placed, parts, self._window_ms, number)

    def _place(self, labels: Labels) -> _PlacedSeries | None:
        """None for labels that the write path of a ruler refuses too."""
        if labels not in self._placed:
            try:
                canonical = normalize_labels(canonical_labels(labels), LabelLimits())
            except InvalidRequest:
                self._placed[labels] = None
                return None
            place = self._rule.place(canonical)
            partition = partition_of(place.placement, self._task.shared.partitions)
            self._placed[labels] = _PlacedSeries(series_id(canonical), place.pack_id, partition, canonical)
        return self._placed[labels]

    def _announce(self, announcer: TaskAppender, one: _PlacedSeries, first_ms: int, last_ms: int) -> None:
        for ts_ms in (first_ms, last_ms):
            mark = one.series_id, index_epoch(one.series_id, ts_ms)
            if mark not in self._announced:
                self._announced.add(mark)
                announcer.send(one.partition, *encode_announcement(*mark, one.pack_id, one.canonical))


def _sorted_rows(
    series: Sequence[_PlacedSeries],
    samples: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]],
    window_ms: int,
    range_number: int,
) -> SortedRows:
    """The samples of all series, each ascending in time, as rows. Stretches of a series in a window are sorted, not
    samples."""
    times, values = (np.concatenate(columns) for columns in zip(*samples, strict=True))
    lengths = np.array([len(ts_ms) for ts_ms, _ in samples], np.int64)
    windows = times - times % window_ms
    begins = np.zeros(len(times), np.bool_)
    begins[1:] = windows[1:] != windows[:-1]
    begins[np.cumsum(lengths) - lengths] = True
    starts = np.flatnonzero(begins)
    row = np.repeat(np.arange(len(series)), lengths)[starts]
    partition = np.array([one.partition for one in series], np.int32)[row]
    pack_id = np.array([one.pack_id for one in series], np.uint64)[row]
    ids = np.array([one.series_id for one in series], np.uint64)[row]
    order = np.lexsort((ids, windows[starts], pack_id, partition))
    counts = np.diff(starts, append=len(times))[order]
    places = joined_ranges(starts[order], counts)
    return SortedRows(
        np.repeat(partition[order], counts),
        np.repeat(pack_id[order], counts),
        windows[places],
        np.full(len(places), range_number, np.int32),
        np.repeat(ids[order], counts),
        times[places],
        values[places],
    )
