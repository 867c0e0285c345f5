"""Joined read: the partitions of one Select whose memory does not reach the start, answered from memory and history.

Errors that need no chunk are raised before the first answer: history that does not reach memory, and holes. Chunks are
read while the answer is consumed, one partition at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tsdb.answer.answer import Answer, AnswerBody, AnswerCounts, PartitionAnswer, RawResult, SealedColumns, one_part
from tsdb.answer.spec import SelectSpec
from tsdb.answer.state import MemoryState
from tsdb.model.errors import CorruptData
from tsdb.ops.metrics import histogram
from tsdb.query.history.holes import HistoryHoles
from tsdb.query.join.completeness import check_complete, seam_ms
from tsdb.query.join.partition_join import PartitionJoin
from tsdb.query.join.seam import NO_SAMPLES, StoreSamples
from tsdb.query.sources import HistorySource
from tsdb.query.stores.fan_out import ShareStreams
from tsdb.reader.read_call import ReadCall, SelectLimits

ANSWER_BYTES = 1 << 20  # Samples in one answer of several sources.

joined_seconds = histogram("tsdb_query_joined_seconds", "Time to join one partition's answer of memory and history.")


class AnswerTotals:
    """Running totals of one select. Each addition is checked against its limits."""

    def __init__(self, limits: SelectLimits) -> None:
        self.limits = limits
        self.series = self.samples = self.bytes = 0

    @property
    def counts(self) -> AnswerCounts:
        return AnswerCounts(self.series, self.samples, self.bytes)

    def add(self, counts: AnswerCounts) -> None:
        """Raises Overloaded (series_limit, samples_limit, bytes_limit)."""
        self.series += counts.series
        self.samples += counts.samples
        self.bytes += counts.payload_bytes
        self.limits.check_series(self.series)
        self.limits.check_samples(self.samples)
        self.limits.check_bytes(self.bytes)


@dataclass(frozen=True, slots=True)
class StepSplit:
    """Steps from at_ms on are aggregated by the store: it has all their samples in memory. None: no steps are."""

    at_ms: int | None

    @classmethod
    def of(cls, query: SelectSpec, states: Iterable[MemoryState]) -> StepSplit:
        """The first step of the query that begins at or after the coverage of all states."""
        if not query.step_ms:
            return cls(None)
        coverage_ms = max(state.coverage_start_ms for state in states)
        steps = max(0, -(-(coverage_ms - query.start_ms) // query.step_ms))
        at_ms = query.start_ms + steps * query.step_ms
        return cls(at_ms if query.start_ms < at_ms < query.end_ms else None)

    def specs(self, spec: SelectSpec) -> list[SelectSpec]:
        """The specs for the store: samples with their orders before the split, and steps from the split on."""
        samples = replace(
            spec,
            columns=False,
            partial=True,
            step_ms=0,
            aggregation=0,
            downsampled=False,
            # For series requested by id, history needs their metric names, so labels are requested.
            labels=spec.labels or spec.series_ids is not None,
        )
        if self.at_ms is None:
            return [samples]
        return [replace(samples, end_ms=self.at_ms), replace(spec, start_ms=self.at_ms)]


class JoinedRead:
    """The joined partitions of one Select. Not thread-safe: it runs on the caller's thread."""

    def __init__(
        self,
        history: HistorySource,
        query: SelectSpec,
        totals: AnswerTotals,
        caller: ReadCall,
        *,
        keeps: bool = False,
    ) -> None:
        """keeps: answered partitions stay in memory until the end of the read."""
        self._history = history
        self._query = query
        self._totals = totals
        self._caller = caller
        self._allow_holes = query.options.allow_holes
        self._keeps = keeps or self._allow_holes

    def open(self, opened: Sequence[ShareStreams[Answer]]) -> tuple[list[MemoryState], list[Iterator[PartitionAnswer]]]:
        """States, and per store an iterator over its partitions, ascending, which reads lazily.

        Raises Unavailable (history_behind), HoleInRange, and as history does.
        """
        states = {state.partition: state for one in opened for state in _states(one)}
        topic_id = next(iter(states.values())).topic_id
        # Read before any chunk, because `loaded` must not state more than the chunks that are read after it.
        loaded = self._history.store.loaded(topic_id)
        seams = {
            partition: seam_ms(state, self._query.end_ms)
            for partition, state in states.items()
            if not state.reaches(self._query.start_ms)
        }
        for partition, seam in seams.items():
            check_complete(states[partition], loaded, seam)
        holes = HistoryHoles.read(self._history.store, self._query.start_ms, seams, allowed=self._allow_holes)
        for partition in seams:
            holes.check(partition)
        join = PartitionJoin(
            self._history, self._query, loaded, seams, holes, self._totals.limits, self._caller, self._kept_bytes
        )
        parts = [self._partitions(one, dict(states), join) for one in opened]
        if self._allow_holes:
            # The answer lists every hole, including corrupt chunks, which are found only by reading.
            parts = [iter(list(part)) for part in parts]
        holes.list_in(states)
        return list(states.values()), parts

    def _kept_bytes(self) -> int:
        """Memory of answered partitions that are not sent at once."""
        return self._totals.bytes if self._keeps else 0

    def _partitions(
        self, opened: ShareStreams[Answer], states: dict[int, MemoryState], join: PartitionJoin
    ) -> Iterator[PartitionAnswer]:
        samples = _whole_partitions(opened.messages())
        steps = _whole_partitions(opened.messages(1)) if len(opened.first) > 1 else None
        for partition in opened.share.partitions:
            held = _next(samples, partition)
            aggregated = NO_SAMPLES if steps is None else _next(steps, partition)
            with joined_seconds.time():
                joined = join.answer(states[partition], held, aggregated)
            self._totals.add(counts_of(joined))
            yield joined


def counts_of(part: PartitionAnswer) -> AnswerCounts:
    """The counts of a whole partition."""
    series = 0 if part.series is None else len(part.series)
    samples = payload_bytes = 0
    found: list[SealedColumns | RawResult] = [*part.columns, *part.overlay, *part.raw]
    for one in found:
        samples += one.samples
        payload_bytes += one.payload_bytes
    return AnswerCounts(series, samples, payload_bytes)


def alone_parts(answers: Iterable[Answer], totals: AnswerTotals) -> Iterator[PartitionAnswer]:
    """The parts of one store's answer. Its counts are added to `totals`."""
    for answer in answers:
        if answer.body.counts is not None:
            totals.add(answer.body.counts)
        yield from answer.body.parts


def combined(
    states: Iterable[MemoryState],
    warnings: Sequence[str],
    sources: Sequence[Iterable[PartitionAnswer]],
    totals: AnswerTotals,
) -> Iterator[Answer]:
    """One select of several sources, of which each has its partitions in ascending order. Answers have about
    ANSWER_BYTES, so only these are in memory."""
    ordered: Sequence[MemoryState] | None = sorted(states, key=lambda state: state.partition)
    held: list[PartitionAnswer] = []
    reserved_bytes = 0
    for part in heapq.merge(*sources, key=lambda part: part.partition):
        held.append(part)
        reserved_bytes += counts_of(part).payload_bytes
        if reserved_bytes >= ANSWER_BYTES:
            yield Answer(AnswerBody(held, None, reserved_bytes), ordered, warnings)
            ordered, warnings, held, reserved_bytes = None, (), [], 0
    yield Answer(AnswerBody(held, totals.counts, reserved_bytes), ordered, warnings)


def _whole_partitions(answers: Iterable[Answer]) -> Iterator[PartitionAnswer]:
    """Parts that are whole partitions, ascending. Raises CorruptData when a store answers them in another order."""
    held: list[PartitionAnswer] = []
    for part in (part for answer in answers for part in answer.body.parts):
        if held and part.partition != held[0].partition:
            if part.partition < held[0].partition:
                raise CorruptData(
                    f"a store answered partition {part.partition} after partition {held[0].partition}",
                    reason="answer_malformed",
                )
            yield one_part(held)
            held = []
        held.append(part)
    if held:
        yield one_part(held)


def _states(opened: ShareStreams[Answer]) -> Iterator[MemoryState]:
    """States of the samples' stream. With a stream of steps too, the applied offset is the lower of both."""
    answers = [{state.partition: state for state in first.states or ()} for first in opened.first]
    for partition in opened.share.partitions:
        found = [answer[partition] for answer in answers if partition in answer]
        if len(found) != len(answers):
            raise CorruptData(f"store {opened.share.store.name} says nothing of partition {partition}")
        offsets = [state.applied_offset for state in found if state.applied_offset is not None]
        if len(offsets) == len(found):
            yield replace(found[0], applied_offset=min(offsets))
        else:
            yield found[0]


def _next(answers: Iterator[PartitionAnswer], partition: int) -> StoreSamples:
    part = next(answers, None)
    if part is None or part.partition != partition:
        found = None if part is None else part.partition
        raise CorruptData(f"a store answered partition {found} in place of {partition}", reason="answer_malformed")
    return StoreSamples.of(part)
