"""Runs a recording through the real log, store, chunk stage, loader and history in this process.

The test moves the clock: hours pass in seconds, and time stands still during reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from support.data.recordings import Batch, Recording, Sample
from support.oracles.history_oracle import HistoryOracle
from support.servers.chunkers import chunker_options, running
from support.servers.logs import wait_until
from support.servers.node import Node
from tsdb.codec.chunk.key import ChunkKey, Kind, ProgressKey, WindowKey, decode_key
from tsdb.codec.chunk.marker import ProgressMarker, decode_progress_marker
from tsdb.codec.records.log_record import encode_record
from tsdb.codec.records.series_record import encode_announcement
from tsdb.head.state import HeadState
from tsdb.history.interface import ChunkStore, Loaded
from tsdb.history.loader.loader import GROUP, Loader, LoaderOptions
from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, METRICS, SERIES, Appended, Log, LogRecord, RecordBatch
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.model.labels import series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.window import index_epoch
from tsdb.v1 import common_pb2

WITHIN_S = 60.0
STAGE_BEHIND_MS = 60_000  # The chunk stage's clock is behind while samples flow, by less than what would stop it.
RULE = PlacementRule()


class SetClock:
    """A wall clock that a test sets forward; the monotonic one is the machine's."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def reach(self, now_ms: int) -> None:
        """Set the time forward; an earlier time is ignored."""
        self._now_ms = max(self._now_ms, now_ms)


@dataclass
class Emitted:
    """Contents of `chunks` by partition: packs of each window, windows with a marker, the last progress marker."""

    base: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    marked: dict[int, set[int]] = field(default_factory=dict)
    progress: dict[int, ProgressMarker] = field(default_factory=dict)

    def add(self, partition: int, record: LogRecord) -> None:
        """Add one record; records come in order."""
        assert record.key is not None
        if record.value is None:
            return  # The deletion of a chunk that a fold covers.
        match decode_key(record.key):
            case ChunkKey(kind=Kind.BASE) as key:
                self.base.setdefault(partition, set()).add((key.window_start_ms, key.pack_id))
            case WindowKey(window_start_ms):
                self.marked.setdefault(partition, set()).add(window_start_ms)
            case ProgressKey():
                self.progress[partition] = decode_progress_marker(record.value)


class Way:
    """The way of one recording over one log and one history. A context manager: it closes its readers."""

    def __init__(self, log: Log, history: ChunkStore, recording: Recording, seed: int) -> None:
        self.log = log
        self.history = history
        self.recording = recording
        self.times = recording.times
        self.partitions = log.partitions(METRICS)
        self.oracle = HistoryOracle(recording.labels, recording.times)
        self.clock = SetClock(int(recording.ts_ms[0]))
        self.stage_clock = SetClock(int(recording.ts_ms[0]))  # A separate clock paces the emission.
        self.emitted = Emitted()
        self.tokens: dict[int, common_pb2.Token] = {}
        self._batches = recording.batches(seed)
        self._next: Batch | None = next(self._batches)
        self._places = [RULE.place(canonical) for canonical in recording.labels]
        self._ids = np.array([series_id(canonical) for canonical in recording.labels], np.uint64)
        self._partition = [partition_of(place.placement, self.partitions) for place in self._places]
        self._announced: dict[tuple[int, int], int] = {}
        self._appended: list[Appended | TsdbError] = []
        self._chunks = log.reader({(CHUNKS, partition): 0 for partition in range(self.partitions)})
        self._loaders = log.group(GROUP)

    def __enter__(self) -> Way:
        return self

    def __exit__(self, *raised: object) -> None:
        self._chunks.close()
        self._loaders.leave()

    # Writing.

    def feed(self, through_ms: int) -> None:
        """Write all records before this broker time, wait for their acknowledgement, and set the clock to it."""
        while self._next is not None and self._next.broker_ms < through_ms:
            self._append(self._next)
            self._next = next(self._batches, None)
        self._flush()
        self.clock.reach(through_ms)

    def feed_all(self) -> int:
        """Write the remaining records. Returns the last broker time."""
        last_ms = self.clock.now_ms()
        while self._next is not None:
            last_ms = max(last_ms, self._next.broker_ms)
            self.feed(self._next.broker_ms + self.times.window_ms)
        return last_ms

    def write(self, batch: Batch) -> None:
        """Write one batch and wait for its acknowledgement."""
        self._append(batch)
        self._flush()

    def _append(self, batch: Batch) -> None:
        """Series are announced before it, as a gateway does."""
        self.clock.reach(batch.broker_ms)
        self.stage_clock.reach(batch.broker_ms - STAGE_BEHIND_MS)
        self._announce(batch)
        for partition in range(self.partitions):
            mine = [sample for sample in batch.samples if self._partition[sample[0]] == partition]
            if mine:
                record = self._record(mine)
                self.log.append(METRICS, partition, record, timestamp_ms=batch.broker_ms, on_done=self._appended.append)
        self.oracle.add(batch)

    def _flush(self) -> None:
        self.log.flush(WITHIN_S)
        assert all(isinstance(answer, Appended) for answer in self._appended), self._appended
        # Answers come from two threads, so not always in the order of the records.
        for answer in sorted(cast(list[Appended], self._appended), key=lambda answer: answer.offset):
            self.tokens[answer.partition] = common_pb2.Token(
                topic_id=self.log.topic_id(METRICS), partition=answer.partition, record_offset=answer.offset
            )
        self._appended.clear()

    def _announce(self, batch: Batch) -> None:
        again_ms = batch.broker_ms - self.times.window_ms // 2
        due = {(row, index_epoch(int(self._ids[row]), ts)) for row, ts, _ in batch.samples}
        due = {pair for pair in due if self._announced.get(pair, again_ms) <= again_ms}
        answers: list[object] = []
        for row, epoch in sorted(due):
            self._announced[row, epoch] = batch.broker_ms
            key, value = encode_announcement(
                int(self._ids[row]), epoch, self._places[row].pack_id, self.oracle.labels[row]
            )
            self.log.append(
                SERIES,
                self._partition[row],
                value,
                key=key,
                timestamp_ms=batch.broker_ms,
                on_done=answers.append,
            )
        if due:
            self.log.flush(WITHIN_S)
        assert all(isinstance(answer, Appended) for answer in answers), answers

    def _record(self, samples: list[Sample]) -> bytes:
        # Stable: of one series at one time the later one of the record stays the later.
        ordered = sorted(samples, key=lambda sample: self._places[sample[0]].pack_id)
        pack_ids, lengths = np.unique(
            np.array([self._places[row].pack_id for row, _, _ in ordered], np.uint64), return_counts=True
        )
        return encode_record(
            pack_ids,
            lengths.astype(np.uint32),
            self._ids[[row for row, _, _ in ordered]],
            np.array([ts for _, ts, _ in ordered], np.int64),
            np.array([value for _, _, value in ordered], np.float64),
        )

    # Chunk stage.

    @contextmanager
    def chunking(self) -> Iterator[None]:
        """Run a chunker, which emits the output that is due by its clock."""
        with running(self.log, chunker_options(self.times), self.stage_clock):
            yield

    def emit_some(self, window_end_ms: int) -> int:
        """Run until the middle of the window's emission. Returns the packs emitted so far."""
        start_ms = window_end_ms - self.times.window_ms
        self.stage_clock.reach(window_end_ms + self.times.grace_ms + self.times.spread_ms // 2)
        wait_until(lambda: self._packs_of(start_ms) > 0, WITHIN_S)
        marked = sum(start_ms in windows for windows in self.emitted.marked.values())
        assert marked < self.partitions, "no window is whole in the middle of its emission"
        return self._packs_of(start_ms)

    def emit(self, window_end_ms: int) -> None:
        """Feed until all windows that end by this time are due, then wait until they and their progress are written."""
        due_ms = window_end_ms + self.times.grace_ms + self.times.spread_ms
        self.feed(due_ms)
        self.stage_clock.reach(due_ms)
        wait_until(lambda: self._emitted_through() >= window_end_ms, WITHIN_S)

    def _packs_of(self, window_start_ms: int) -> int:
        self._tail()
        return sum(start == window_start_ms for packs in self.emitted.base.values() for start, _ in packs)

    def _emitted_through(self) -> int:
        self._tail()
        found = self.emitted.progress
        return min(each.emitted_through_ms for each in found.values()) if len(found) == self.partitions else -1

    def _tail(self) -> None:
        for event in self._chunks.poll(0.02):
            if isinstance(event, RecordBatch):
                for index in range(len(event.offsets)):
                    self.emitted.add(event.partition, event.record(index))

    # Loader.

    @contextmanager
    def loading(self) -> Iterator[Loader]:
        """Run a loader for the block; it is drained at the end."""
        options = LoaderOptions(self.times, commit_interval_s=0.05, drain_s=10.0)
        loader = Loader(self.log, self.history, options, self.clock, seed=1)
        loader.start()
        try:
            yield loader
        finally:
            loader.close()
            assert loader.join(WITHIN_S), "the loader does not end"

    def load(self) -> None:
        """Run a loader until all records of `chunks` and `series` are in history."""
        with self.loading() as loader:
            self.wait_loaded(loader)

    def wait_loaded(self, loader: Loader) -> None:
        """Wait until all current records of `chunks` and `series` are in history, committed and marked as loaded."""
        self._tail()
        told = {number: (each.position, each.emitted_through_ms) for number, each in self.emitted.progress.items()}
        ends = {
            (topic, partition): marks.high
            for topic in (CHUNKS, SERIES)
            for partition, marks in self.log.watermarks(topic, range(self.partitions)).items()
        }

        def done() -> bool:
            if (failure := loader.failure()) is not None:
                raise failure
            committed = self._loaders.committed(list(ends))
            if not all(end == 0 or ((at := committed[place]) and at.next_offset >= end) for place, end in ends.items()):
                return False
            loaded = self.history.loaded(self.log.topic_id(METRICS))
            found = {number: (each.position, each.emitted_through_ms) for number, each in loaded.items()}
            return all(number in found and found[number] >= least for number, least in told.items())

        wait_until(done, WITHIN_S)

    def dead_letters(self) -> int:
        """Records that a loader sent to dead letters."""
        marks = self.log.watermarks(CHUNKS_DLQ, range(self.partitions))
        return sum(mark.high - mark.low for mark in marks.values())

    # Contents.

    def missing(self, node: Node, start_ms: int, end_ms: int) -> bool:
        """Whether a part of the range is neither in this store's memory nor in history, by design section 9."""
        before = [
            (status.partition, status.state)
            for status in node.statuses()
            if not status.state.from_start and status.state.coverage_start_ms > start_ms
        ]
        try:
            loaded = self.history.loaded(self.log.topic_id(METRICS)) if before else {}
        except (Unavailable, Overloaded):
            return True
        return any(not _meets(loaded.get(partition), state, end_ms) for partition, state in before)


def _meets(loaded: Loaded | None, state: HeadState, end_ms: int) -> bool:
    if loaded is None or loaded.position < state.since_offset:
        return False
    return loaded.emitted_through_ms >= min(state.coverage_start_ms, end_ms)
