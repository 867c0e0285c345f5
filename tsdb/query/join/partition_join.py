"""Partition join: makes the answer of one partition from its store's samples and history's samples of the same
series."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import AnswerSeries, PackedLabels, PartitionAnswer
from tsdb.answer.spec import SelectSpec
from tsdb.answer.state import MemoryState
from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.interface import Loaded
from tsdb.model.labels import metric_name
from tsdb.query.history.downsampled import DerivedPart, DerivedSteps
from tsdb.query.history.holes import HistoryHoles
from tsdb.query.history.index import NO_SERIES, Choice, HistorySeries
from tsdb.query.history.samples import HistoryQuery, history_samples
from tsdb.query.join.seam import Seam, StoreSamples
from tsdb.query.reduction import Reduction
from tsdb.query.sources import HistorySource, answered_total
from tsdb.reader.read_call import ReadWork, SelectLimits

ORDERED_SAMPLE_BYTES = 24  # Bytes of time, value and order.
MERGE_COPIES = 2


@dataclass(frozen=True, slots=True)
class PartitionJoin:
    """The join of one Select. seams: for each partition that needs history, the time before which history answers.

    loaded: read before any chunk. work: called between pieces of work and before memory is allocated. kept_bytes:
    memory of partitions whose answer is not sent yet.
    """

    history: HistorySource
    query: SelectSpec
    loaded: Mapping[int, Loaded]
    seams: Mapping[int, int]
    holes: HistoryHoles
    limits: SelectLimits
    work: ReadWork
    kept_bytes: Callable[[], int]

    def answer(self, state: MemoryState, held: StoreSamples, steps: StoreSamples) -> PartitionAnswer:
        """held: the store's samples, with orders. steps: the steps after them, already aggregated by the store."""
        query, partition = self.query, state.partition
        series = self._history_series(state, held)
        self.holes.check(partition, set(series.pack_ids))
        derived = self._derived_part(partition)
        first_ms = query.start_ms if derived is None else derived.end_ms
        reduction = Reduction(query.start_ms, query.step_ms, query.aggregation, query.last_n)
        seam = Seam(held if derived is None else held.since(first_ms), reduction)
        joined, before = 0, len(held.ts_ms) + len(steps.ts_ms)
        self._hold(before)
        if derived is not None:
            for steps_ in self._derived_steps(state, derived, series, lambda samples: self._hold(before + samples)):
                joined += seam.add_steps(steps_)
                self.limits.check_samples(joined)

        def on_progress(samples: int) -> None:
            self._hold(before + joined + samples)

        for stretch in self._stretches(partition, series, first_ms, self.seams.get(partition, first_ms), on_progress):
            joined += seam.add(stretch)
            self.limits.check_samples(joined)
            on_progress(0)
        answered_total.labels(self._source(partition, held, steps)).inc()
        series_ids, labels = _union(held, steps, series)
        found = AnswerSeries(partition, series_ids, PackedLabels.of(labels) if query.labels else None)
        raw = (seam.result(series_ids, steps),)
        # When columns were requested, samples outside columns are an overlay.
        return PartitionAnswer(partition, found, overlay=raw if query.columns else (), raw=() if query.columns else raw)

    def _hold(self, samples: int) -> None:
        """Check the call and reserve memory for `samples`; a merge needs them twice."""
        self.work.check_going()
        self.work.hold(self.kept_bytes() + MERGE_COPIES * ORDERED_SAMPLE_BYTES * samples)

    def _stretches(
        self, partition: int, series: HistorySeries, start_ms: int, end_ms: int, on_progress: Callable[[int], None]
    ) -> Iterator[Fragment]:
        """History's samples of these series in [start_ms, end_ms)."""
        start_ms, end_ms = max(start_ms, series.start_ms), min(end_ms, series.end_ms)
        if not series.pack_ids or start_ms >= end_ms:
            return
        wanted = HistoryQuery(series.pack_ids, series.series_ids, series.labels, start_ms, end_ms)
        corrupt = partial(self.holes.add_corrupt, partition, self.history.window_ms)
        yield from history_samples(self.history.store, wanted, self.history.window_ms, corrupt, on_progress)

    def _derived_part(self, partition: int) -> DerivedPart | None:
        part = None if self.history.resolutions is None else self.history.resolutions.part(self.query)
        return None if part is None or partition not in self.seams else part.before(self.seams[partition], self.query)

    def _derived_steps(
        self,
        state: MemoryState,
        part: DerivedPart,
        sources: HistorySeries,
        on_progress: Callable[[int], None],
    ) -> Iterator[Fragment]:
        choice, needs = Choice(part.matchers(self.query)), {state.partition: state.since_offset}
        start_ms = self.query.start_ms
        found = self.history.index.find(choice, start_ms, part.end_ms, self.loaded, needs, self.work.check_going)[
            state.partition
        ]
        if not found.pack_ids:
            return
        # The chunks of derived series may be lost while those of their sources are not, because they have other packs.
        self.holes.check(state.partition, set(found.pack_ids))
        derived = DerivedSteps(part, self.query, found, sources.series_ids)
        wanted = replace(found, series_ids=derived.series_ids)
        for stretch in self._stretches(state.partition, wanted, start_ms, part.end_ms, on_progress):
            yield from derived.steps(stretch)

    def _history_series(self, state: MemoryState, held: StoreSamples) -> HistorySeries:
        partition = state.partition
        if partition not in self.seams:
            return NO_SERIES
        choice = Choice(self.query.matchers, self.query.series_ids, _names(self.query, held))
        needs = {partition: state.since_offset}
        end_ms = self.seams[partition]
        return self.history.index.find(choice, self.query.start_ms, end_ms, self.loaded, needs, self.work.check_going)[
            partition
        ]

    def _source(self, partition: int, held: StoreSamples, steps: StoreSamples) -> str:
        if partition not in self.seams:
            return "memory"
        return "both" if len(held.ts_ms) or len(steps.ts_ms) else "history"


def _names(query: SelectSpec, held: StoreSamples) -> frozenset[bytes] | None:
    """Metric names of the requested series ids, when memory has them all; None: the names are not known."""
    if query.series_ids is None or len(held.series_ids) < len(query.series_ids):
        return None
    return frozenset(map(metric_name, held.labels))


def _union(held: StoreSamples, steps: StoreSamples, history: HistorySeries) -> tuple[NDArray[np.uint64], list[bytes]]:
    """All series, ascending by id, each once. An id has the same labels in every source."""
    sources = [(held.series_ids, held.labels), (steps.series_ids, steps.labels), (history.series_ids, history.labels)]
    filled = [source for source in sources if len(source[0])]
    if not filled:
        return held.series_ids, []
    if len(filled) == 1:
        return filled[0]
    series_ids, first = np.unique(np.concatenate([ids for ids, _ in filled]), return_index=True)
    labels = [label for _, of_source in filled for label in of_source]
    return series_ids, [labels[at] for at in first.tolist()]
