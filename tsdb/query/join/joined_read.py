"""Joined read: the partitions of one Select whose memory does not reach the start, answered from memory and history.

Errors that need no chunk are raised before the first message: history that does not reach memory, and holes. Chunks are
read while the answer is consumed, one partition at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsdb.model.errors import CorruptData
from tsdb.ops.metrics import histogram
from tsdb.query.history.holes import HistoryHoles
from tsdb.query.join.completeness import check_complete, reaches, seam_ms
from tsdb.query.join.partition_join import JoinedSamples, PartitionJoin
from tsdb.query.join.pieces import AnswerTotals, pieces, whole_partitions
from tsdb.query.sources import HistorySource
from tsdb.query.stores.fan_out import ShareStreams
from tsdb.query.stores.samples import NO_SAMPLES, StoreSamples, store_samples_of
from tsdb.reader.read_call import ReadCall
from tsdb.reader.request import SelectSpec
from tsdb.v1 import common_pb2, reader_pb2

Response = reader_pb2.SelectResponse
States = dict[int, common_pb2.PartitionState]

joined_seconds = histogram("tsdb_query_joined_seconds", "Time to join one partition's answer of memory and history.")


class JoinedRead:
    """The joined partitions of one Select. Not thread-safe: it runs on the caller's thread."""

    def __init__(
        self,
        history: HistorySource,
        query: SelectSpec,
        totals: AnswerTotals,
        caller: ReadCall,
        *,
        allow_holes: bool,
        keeps: bool = False,
    ) -> None:
        """keeps: answered partitions stay in memory until the end of the read."""
        self._history = history
        self._query = query
        self._totals = totals
        self._caller = caller
        self._allow_holes = allow_holes
        self._keeps = keeps or allow_holes

    def open(self, opened: Sequence[ShareStreams[Response]]) -> tuple[States, list[Iterator[JoinedSamples]]]:
        """States for the header, and per store an iterator over its partitions, ascending, which reads lazily.

        Raises Unavailable (history_behind), HoleInRange, and as history does.
        """
        states = {state.partition: state for one in opened for state in _states(one)}
        topic_id = next(iter(states.values())).topic_id
        # Before any chunk is read: `loaded` must not state more than the chunks that are read after it.
        loaded = self._history.store.loaded(topic_id)
        seams = {
            partition: seam_ms(state, self._query.end_ms)
            for partition, state in states.items()
            if not reaches(state, self._query.start_ms)
        }
        for partition, seam in seams.items():
            check_complete(states[partition], loaded, seam)
        holes = HistoryHoles.read(self._history.store, self._query.start_ms, seams, allowed=self._allow_holes)
        for partition in seams:
            holes.check(partition)
        join = PartitionJoin(
            self._history, self._query, loaded, seams, holes, self._totals.limits, self._caller, self._kept_bytes
        )
        parts = [self._partitions(one, states, join) for one in opened]
        if self._allow_holes:
            # The header lists every hole, also corrupt chunks, which only reading finds.
            parts = [iter(list(part)) for part in parts]
        holes.list_in(states)
        return states, parts

    def _kept_bytes(self) -> int:
        """Memory of answered partitions that are not sent at once."""
        return self._totals.bytes if self._keeps else 0

    def _partitions(
        self, opened: ShareStreams[Response], states: States, join: PartitionJoin
    ) -> Iterator[JoinedSamples]:
        samples = whole_partitions(pieces(opened.messages(), None))
        steps = whole_partitions(pieces(opened.messages(1), None)) if len(opened.first) > 1 else None
        for partition in opened.share.partitions:
            held = _next(samples, partition)
            aggregated = NO_SAMPLES if steps is None else _next(steps, partition)
            with joined_seconds.time():
                joined = join.answer(states[partition], held, aggregated)
            self._totals.add(len(joined.series_ids), joined.raw.samples, joined.raw.payload_bytes)
            yield joined


def _states(opened: ShareStreams[Response]) -> Iterator[common_pb2.PartitionState]:
    """States of the stream of samples. With a stream of steps too, the applied offset is the lower one of both."""
    answers = [{state.partition: state for state in first.header.partitions} for first in opened.first]
    for partition in opened.share.partitions:
        found = [answer[partition] for answer in answers if partition in answer]
        if len(found) != len(answers):
            raise CorruptData(f"store {opened.share.store.name} says nothing of partition {partition}")
        state = found[0]
        if all(one.HasField("applied_offset") for one in found):
            state.applied_offset = min(one.applied_offset for one in found)
        yield state


def _next(answers: Iterator[tuple[int, list[Response]]], partition: int) -> StoreSamples:
    found, messages = next(answers, (None, []))
    if found != partition:
        raise CorruptData(f"a store answered partition {found} in place of {partition}", reason="answer_malformed")
    return store_samples_of(messages)
