"""Watch: streams applied samples live, each once per offset. A stream can resume within a head's ring.

Each stream has one thread, which reads each head's ring in turn and sleeps on the applied signal. It never waits for a
slow reader while it has a lock. A reader slower than the ring gets an error with the offset up to which it has seen
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import AnswerSeries, PackedLabels, WatchAnswer
from tsdb.head.head import Head
from tsdb.head.slices.ring import RingBatch
from tsdb.index.matching import conditions_of
from tsdb.model.errors import OutOfCoverage
from tsdb.model.selector import Matcher
from tsdb.reader.read_call import Caller, ReadCalls
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition

HEARTBEAT_S = 1.0
"""How often a quiet stream sends its last offset."""
DETAIL_BYTES_MAX = 1 << 20  # Limit of the details in an answer that has several records.

Select = Callable[[Head], NDArray[np.uint32]]
"""Refs of the watched series of a head."""


class Watch:
    """State of one stream, by partition: the last offset that was read, and the series that were described.

    resume: the last record seen of a partition; a partition without one starts now. Raises InvalidRequest for bad
    matchers.

    """

    def __init__(
        self, partitions: Mapping[int, Partition], matchers: tuple[Matcher, ...], resume: Mapping[int, int]
    ) -> None:
        conditions_of(matchers)  # Bad matchers are refused now, not with the first record.
        self._partitions = partitions
        self._matchers = matchers
        self._seen = {p: resume.get(p, _now(partition)) for p, partition in partitions.items()}
        self._described: dict[int, set[int]] = {p: set() for p in partitions}

    def answers(self, applied: AppliedSignal, caller: Caller, calls: ReadCalls) -> Iterator[WatchAnswer]:
        """Answers while the caller is active. calls: a stream has no time limit, but each of its selections has that of
        a read.

        Raises OutOfCoverage with the last offset when the ring has moved past it, Unavailable when the store ends,
        Overloaded (read_timeout).
        """

        def select(head: Head) -> NDArray[np.uint32]:
            with calls.of(caller) as call:

                def check_going() -> None:
                    applied.check_open()
                    call.check_going()

                return head.index.select(self._matchers, check_going)

        quiet_since = applied.clock.monotonic()
        while caller.is_active():
            applied.check_open()
            generation = applied.generation()
            sent = False
            for number in self._partitions:
                for answer in self._new_samples(number, select):
                    sent = True
                    yield answer
            now = applied.clock.monotonic()
            if sent:
                quiet_since = now
            elif now - quiet_since < HEARTBEAT_S:
                applied.wait(generation, HEARTBEAT_S - (now - quiet_since))
            else:
                # Also needed while only records without a match arrive, because the resume point must stay within the
                # ring.
                yield from self._heartbeats()
                quiet_since = now

    def _heartbeats(self) -> Iterator[WatchAnswer]:
        for number, partition in self._partitions.items():
            yield WatchAnswer(number, partition.topic_id, self._seen[number], _warning(partition))

    def _new_samples(self, number: int, select: Select) -> Iterator[WatchAnswer]:
        partition = self._partitions[number]
        head = partition.head
        try:
            batches = head.watch_since(self._seen[number])
        except OutOfCoverage as error:
            raise OutOfCoverage(
                f"watch is too far behind: {error.message}; last record_offset sent {self._seen[number]}",
                reason="watch_ring",
                partition=number,
                last_record_offset=self._seen[number],
            ) from None
        for batch in (piece for one in batches for piece in one.pieces(DETAIL_BYTES_MAX)):
            answer = self._answer(number, head, batch, select)
            self._seen[number] = batch.last_offset
            if answer is not None:
                yield answer

    def _answer(self, number: int, head: Head, batch: RingBatch, select: Select) -> WatchAnswer | None:
        picked = np.flatnonzero(np.isin(batch.refs, select(head)))
        if not len(picked):
            return None
        refs = batch.refs[picked]
        series_ids = head.index.series_ids_of(refs)
        partition, series = self._partitions[number], None
        fresh = self._not_described(number, refs, series_ids)
        if len(fresh):
            joined, lengths = head.index.labels_of(fresh)
            labels = PackedLabels(bytes(joined), lengths)
            series = AnswerSeries(number, head.index.series_ids_of(fresh), labels)
        return WatchAnswer(
            number,
            partition.topic_id,
            batch.last_offset,
            _warning(partition),
            batch.offsets[picked],
            series_ids,
            batch.ts_ms[picked],
            batch.values[picked],
            series,
            batch.details and batch.details.take(picked),
        )

    def _not_described(
        self, number: int, refs: NDArray[np.uint32], series_ids: NDArray[np.uint64]
    ) -> NDArray[np.uint32]:
        # Labels are kept by id, because a ref may be reused for another series, and a fresh head has other refs.
        described = self._described[number]
        ids, first = np.unique(series_ids, return_index=True)
        fresh = [at for series_id, at in zip(ids.tolist(), first.tolist(), strict=True) if series_id not in described]
        described.update(ids.tolist())
        return refs[fresh]


def _warning(partition: Partition) -> str:
    return partition.evaluate()[1].warning(None)


def _now(partition: Partition) -> int:
    return partition.head.next_offset - 1
