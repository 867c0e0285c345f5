"""Finds series and labels in the heads of a store: matching series with their first and last sample times or counted in
groups, and names and values of labels."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import AnswerSeries, LabelsAnswer, PackedLabels, SeriesAnswer
from tsdb.answer.spec import LabelsSpec, SeriesSpec
from tsdb.answer.state import MemoryState
from tsdb.head.head import Head, HeadState
from tsdb.index.index import SeriesIndex
from tsdb.reader.read_call import ReadWork, SelectLimits, check_values, texts_bytes, values_max
from tsdb.store.partition import Partition, ReadinessSnapshot, ReadStates, ReadStatesCache, Tolerance
from tsdb.store.selection import BLOCK_COPIES

TEXTS_A_PIECE = 1024  # Names or values between two checks of a read of labels: some 0.3 ms.
SERIES_BYTES = 28  # Bytes of a series in a block beside its labels: id, first and last time, length.


@dataclass(frozen=True, slots=True)
class SeriesMatch:
    """Matching series of some partitions: of each its head and refs, ascending by series id. states: one each."""

    heads: list[Head]
    refs: list[NDArray[np.uint32]]
    states: ReadStates


def find(
    partitions: list[Partition], query: SeriesSpec, tolerance: Tolerance, limits: SelectLimits, work: ReadWork
) -> SeriesMatch:
    """The matching series: exact or an error. Raises as Select for a start before coverage and a hole in the range."""
    evaluated = [partition.evaluate() for partition in partitions]
    for _, snapshot in evaluated:
        tolerance.check_fresh(snapshot, query.needed_end_ms)
    found, states = [], []
    for partition, (head, snapshot) in zip(partitions, evaluated, strict=True):
        before = head.state()
        work.check_going()
        refs = head.index.select(query.matchers, work.check_going) if query.matchers else head.index.all_refs()
        state = partition.memory_state(snapshot, before)
        if query.ranged:
            refs = refs[head.has_samples(refs, query.first_ms, query.needed_end_ms)]
            state = partition.memory_state(snapshot, before.through(head.state()))
            if query.start_ms is not None:
                state.check_coverage(query.start_ms)
            tolerance.check_holes([state], query.first_ms, query.needed_end_ms)
        found.append(refs)
        states.append(state)
    if not query.group_by:
        limits.check_series(sum(map(len, found)))
    snapshots = [snapshot for _, snapshot in evaluated]
    return SeriesMatch([head for head, _ in evaluated], found, ReadStates.of(states, snapshots))


def answers(found: SeriesMatch, query: SeriesSpec, work: ReadWork) -> Iterator[SeriesAnswer]:
    """States, then counts per group or the series of each partition, which are collected when they are taken."""
    yield SeriesAnswer(found.states.states, found.states.warnings(query.needed_end_ms))
    if query.group_by:
        yield SeriesAnswer(groups=_groups(found, query.group_by))
        return
    for head, refs in zip(found.heads, found.refs, strict=True):
        work.check_going()
        work.hold(BLOCK_COPIES * (head.index.label_bytes(refs) + SERIES_BYTES * len(refs)))
        yield SeriesAnswer(series=_seen(head, refs))


def _seen(head: Head, refs: NDArray[np.uint32]) -> AnswerSeries:
    joined, lengths = head.index.labels_of(refs)
    first_ms, last_ms = head.seen(refs)
    labels = PackedLabels(bytes(joined), lengths)
    return AnswerSeries(head.partition, head.index.series_ids_of(refs), labels, first_ms, last_ms)


def _groups(found: SeriesMatch, names: tuple[str, ...]) -> dict[tuple[str, ...], int]:
    tally: Tally[tuple[str, ...]] = Tally()
    for head, refs in zip(found.heads, found.refs, strict=True):
        tally.update(head.index.group_counts(list(names), refs))
    return tally


@dataclass(frozen=True, slots=True)
class LabelReads:
    """Partitions whose labels are read: the head of each, its readiness and its state before the read. last: the states
    of the read before."""

    partitions: list[Partition]
    last: ReadStatesCache
    heads: list[Head] = field(default_factory=list)
    snapshots: list[ReadinessSnapshot] = field(default_factory=list)
    before: list[HeadState] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        partitions: list[Partition],
        last: ReadStatesCache,
        tolerance: Tolerance,
        start_ms: int | None,
        end_ms: int | None,
    ) -> LabelReads:
        """Raises Unavailable for a partition that is too far behind, OutOfCoverage for a start before coverage."""
        reads = cls(partitions, last)
        for partition in partitions:
            head, snapshot = partition.evaluate()
            if snapshot.readiness.reason or tolerance.max_lag_ms is not None:
                tolerance.check_fresh(snapshot, end_ms)
            before = head.state()
            if start_ms is not None and not before.reaches(start_ms):
                partition.memory_state(snapshot, before).check_coverage(start_ms)
            reads.heads.append(head)
            reads.snapshots.append(snapshot)
            reads.before.append(before)
        return reads

    @property
    def indexes(self) -> list[SeriesIndex]:
        return [head.index for head in self.heads]

    def states(self) -> ReadStates:
        """The states of the read, from its beginning until now."""
        through = []
        for head, before in zip(self.heads, self.before, strict=True):
            now = head.state()
            through.append(before if now is before else before.through(now))
        return self.last.of(self.partitions, self.snapshots, through)

    def header(self) -> tuple[Sequence[MemoryState], Sequence[str]]:
        """States and warnings of a read of all that the partitions have."""
        states = self.states()
        return states.states, states.warnings(None)


def labels(reads: LabelReads, spec: LabelsSpec, work: ReadWork) -> LabelsAnswer:
    """Raises OutOfCoverage and HoleInRange, where the read has a start; Overloaded (values_limit)."""
    texts: set[str] = set()
    counted = 0  # Texts whose memory is reserved.
    end_ms, limit = spec.needed_end_ms, values_max(spec)
    work.check_going()
    for head in reads.heads:
        if spec.name is None:
            texts.update(head.index.label_names(spec.matchers, work.check_going))
        else:
            found = head.index.label_values(spec.name, spec.matchers, limit=limit, check_going=work.check_going)
            texts.update(found)
            if len(texts) > limit:
                check_values(spec, len(texts))
        # Few new texts of a partition are not worth a check, unless its series are searched.
        if spec.matchers or len(texts) - counted >= TEXTS_A_PIECE:
            counted = len(texts)
            work.hold(texts_bytes(texts))
            work.check_going()
    if len(texts) > counted:
        work.hold(texts_bytes(texts))
    states = reads.states()
    if spec.start_ms is not None:
        states.check_coverage(spec.start_ms)
        Tolerance.of(spec.options).check_holes(states.holed, spec.start_ms, end_ms)
    return LabelsAnswer(states.states, states.warnings(end_ms), texts)
