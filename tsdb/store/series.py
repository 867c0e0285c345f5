"""Series over the heads of a store: finds the matching series with their first and last sample times, or counts per
group."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import AnswerSeries, PackedLabels, SeriesAnswer
from tsdb.answer.spec import SeriesSpec
from tsdb.head.head import Head
from tsdb.reader.read_call import ReadWork, SelectLimits
from tsdb.store.partition import Partition, ReadStates, Tolerance
from tsdb.store.selection import BLOCK_COPIES

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
