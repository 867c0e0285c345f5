"""Reads exemplars of matching series from the heads of a store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tsdb.answer.answer import AnswerSeries, ExemplarsAnswer, PackedLabels
from tsdb.answer.spec import ExemplarsSpec
from tsdb.head.head import Head
from tsdb.reader.read_call import ReadWork
from tsdb.store.series import LabelReads

PART_BYTES = 1 << 20  # Exemplars and their labels in one part of an answer, about.
COPIES = 3  # Copies of a partition's exemplars: those in memory, those of a part, and its message.


def exemplars(reads: LabelReads, spec: ExemplarsSpec, work: ReadWork) -> Iterator[ExemplarsAnswer]:
    """States, then the exemplars of each partition. A head has what its limits left of each series: no state claims
    more, so that neither coverage nor a hole of samples refuses the read."""
    states = reads.states()
    yield ExemplarsAnswer(states.states, states.warnings(spec.end_ms))
    for head in reads.heads:
        work.check_going()
        if head.exemplars.count:
            yield from _of_head(head, spec, work)


def _of_head(head: Head, spec: ExemplarsSpec, work: ReadWork) -> Iterator[ExemplarsAnswer]:
    work.hold(COPIES * head.exemplars.bytes)
    refs = head.index.select(spec.matchers, work.check_going)
    found = head.exemplars_of(refs, spec.start_ms, spec.end_ms)
    if not len(found):
        return
    ids, first, counts = np.unique(found.series_id, return_index=True, return_counts=True)
    refs = refs[np.searchsorted(head.index.series_ids_of(refs), ids)]
    joined, lengths = head.index.labels_of(refs)
    labels = PackedLabels(bytes(joined), lengths).split()
    ends = found.label_starts[first + counts] + 32 * (first + counts)  # Bytes up to the end of each series.
    part = ends // PART_BYTES
    for number in np.unique(part).tolist():
        which = np.flatnonzero(part == number)
        series = AnswerSeries(head.partition, ids[which], PackedLabels.of([labels[index] for index in which.tolist()]))
        start, end = int(first[which[0]]), int(first[which[-1]] + counts[which[-1]])
        yield ExemplarsAnswer(series=series, exemplars=found.take(np.arange(start, end)))
