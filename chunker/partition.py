"""Partition: the chunk stage of one assigned partition, from take-over until it is given up.

One thread steps it: it applies the records that the group has read, writes due output, and commits acknowledged output.
When the partition is given up, its next owner repeats all work that is not committed, with the same keys and bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from chunker.source import PartitionSource
from chunker.takeover import TakeOver, take_over
from chunker.ticker import Ticker
from tsdb.chunks.progress import Progress, encode_progress
from tsdb.chunks.records import ChunkRecord, hole_record
from tsdb.chunks.stage import ChunkStage
from tsdb.chunks.stage_metrics import StageMetrics
from tsdb.codec.chunk.chunk import PART_BYTES_MAX
from tsdb.codec.chunk.key import ProgressKey, encode_key
from tsdb.codec.chunk.marker import encode_progress_marker
from tsdb.head.state import HeadLimits
from tsdb.log.chains import chain_of
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Group, Log, Position
from tsdb.log.outbox import Outbox
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.model.time_set import SliceLengths, TimeSet
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.replay.replay import FreshStart, PartitionProgress, Replay
from tsdb.replay.series_feed import SeriesFeed

COMMIT_EVERY_S = 5.0  # How often a position is committed that moves while nothing is emitted.
AGAIN_S = 0.5
ANSWERS_S = 0.05  # Time between steps while records wait for the log.
REST_S_MAX = 5.0  # Bounds the delay after which a step sees that the machine's clock was set.

log = get_logger(__name__)

takeovers_total = counter(
    "tsdb_chunker_takeovers_total",
    "Partitions begun, by the source of the start position: commit, progress markers, or a first start.",
    label="case",
    values=("commit", "marker", "first"),
)
stopped_total = counter("tsdb_chunker_stopped_total", "Partitions that cannot go on, by reason.", label="reason")


class WriteState(Enum):
    """State of a partition's writing at the end of a step."""

    IDLE = "nothing to write"
    WRITING = "has more to write at once"
    WAITING = "waits for the log's answers"


@dataclass(frozen=True, slots=True)
class StageOptions:
    """Options of a partition's stage."""

    times: TimeSet
    slices: SliceLengths
    limits: HeadLimits
    part_bytes_max: int = PART_BYTES_MAX
    records_max: int = 5_000


@dataclass(frozen=True, slots=True)
class ChunkerContext:
    """Resources that all partitions of a chunker share."""

    log: Log
    group: Group
    series: SeriesFeed
    budget: ByteBudget
    changed: threading.Event
    clock: Clock
    options: StageOptions
    metrics: StageMetrics


class ChunkPartition:
    """`step` advances it. `source` receives the events that the group reads for it. `stopped`: reason why it cannot go
    on, else empty.
    """

    def __init__(self, partition: int, context: ChunkerContext) -> None:
        self.partition = partition
        self._context = context
        self._clock = context.clock
        self._metrics = context.metrics
        self.source = PartitionSource(context.group, (METRICS, partition))
        self.stage: ChunkStage | None = None
        self.replay: Replay[ChunkStage] | None = None
        self.committed: Progress | None = None
        self.stopped = ""
        self.stopped_message = ""
        self.waiting = "taking_over"
        self.unacknowledged_since: float | None = None
        self._outbox = Outbox(context.log, CHUNKS, context.budget, context.changed, context.clock, context.metrics)
        self._chain = chain_of("chunk-stage", context.clock.now_ms)
        self._ticker = Ticker(context.log, partition, context.clock, context.metrics)
        self._writing: Iterator[WriteState] = iter(())
        self._state = WriteState.IDLE
        self._topic_id = ""
        self._again_at = 0.0
        self._rests_until = 0.0
        self._committed_at = 0.0

    @property
    def progress(self) -> PartitionProgress | None:
        """Replay progress; None before the take-over."""
        return self.replay.progress[self.partition] if self.replay else None

    def step(self) -> WriteState:
        """Apply read records and write due output. Never waits for the log's acknowledgements."""
        if self.stopped:
            return WriteState.IDLE
        state = WriteState.IDLE
        try:
            state = self._step()
        except Unavailable as error:
            self._wait(error)
        except TsdbError as error:
            self._stop(error.reason, error.message)
        self._rests_until = self._clock.monotonic() + (self._next_in_s() if state is WriteState.IDLE else 0.0)
        return state

    def rest_s(self) -> float:
        """Seconds for which a step has nothing to do; 0: a step is due."""
        if self.stopped:
            return REST_S_MAX
        return 0.0 if self.source.has_events else max(0.0, self._rests_until - self._clock.monotonic())

    def drain(self) -> bool:
        """Continue the current write. True: it is finished, or it failed."""
        if self.stopped or self._state is not WriteState.WAITING:
            return True
        try:
            self._write()
        except TsdbError as error:
            log.warning("drain ended", partition=self.partition, reason=error.reason, error=error.message)
            return True
        return self._state is not WriteState.WAITING

    def give_up(self) -> None:
        """Release the partition. Unfinished minutes and windows are dropped."""
        self._context.series.forget(self.partition)
        self._outbox.abandon()

    def _step(self) -> WriteState:
        if self.replay is None:
            if self._clock.monotonic() < self._again_at:
                return WriteState.IDLE
            self._begin()
        assert self.replay is not None, "begun"
        self.replay.step(0.0, records_max=self._context.options.records_max)
        self.waiting = waiting.reason if (waiting := self.replay.waiting_for(self.partition)) else ""
        progress = self.replay.progress[self.partition]
        if progress.stopped:
            self._stop(progress.stopped, progress.stopped_message)
            return WriteState.IDLE
        self._write()
        assert self.stage is not None, "begun"
        self._ticker.tick_if_due(at_end=progress.next_offset == self.source.end_offset, due_ms=self.stage.tick_due_ms)
        return self._state

    def _next_in_s(self) -> float:
        """Seconds from an idle step to the next, if no event comes before."""
        now = self._clock.monotonic()
        if self.replay is None or self.stage is None:
            return self._again_at - now
        if self.waiting or not self._outbox.empty:
            return ANSWERS_S
        rests = [REST_S_MAX, self._ticker.rest_s(self.stage.tick_due_ms)]
        due_ms = self.stage.next_due_ms()
        if due_ms is not None:
            rests.append((due_ms - self._clock.now_ms()) / 1000)
        if self.stage.progress != self.committed:
            rests.append(self._committed_at + COMMIT_EVERY_S - now)
        return min(rests)

    # Beginning.

    def _begin(self) -> None:
        fresh = self._renew(self.partition)
        self._context.series.restart(self.partition, fresh.target, fresh.series_start)
        self.source.seek(METRICS, self.partition, fresh.progress.next_offset)
        self.replay = Replay(
            self.source,
            {self.partition: fresh.target},
            {self.partition: fresh.progress},
            self._context.series,
            clock=self._clock,
            renew=self._renew,
        )

    def _renew(self, partition: int) -> FreshStart[ChunkStage]:
        context, options = self._context, self._context.options
        commit = context.group.committed([(METRICS, partition)])[METRICS, partition]
        found = take_over(context.log, partition, commit, options.times, self._clock)
        takeovers_total.labels(found.case).inc()
        log.info(
            "partition begun",
            partition=partition,
            case=found.case,
            position=found.progress.position,
            emitted_through_ms=found.progress.emitted_through_ms,
            next_offset=found.next_offset,
        )
        self._topic_id = found.topic_id
        self.committed = found.progress
        self._metrics.committed(partition, self._clock.now_ms())
        self.stage = ChunkStage(
            partition,
            found.progress,
            found.next_offset,
            times=options.times,
            slices=options.slices,
            limits=options.limits,
            part_bytes_max=options.part_bytes_max,
        )
        self._writing = self._write_all(self.stage, found)
        return FreshStart(self.stage, PartitionProgress(found.next_offset), found.series_offset)

    def _wait(self, error: Unavailable) -> None:
        if self.waiting != error.reason:
            log.warning("partition waits", partition=self.partition, reason=error.reason, error=error.message)
        self.waiting = error.reason
        self._again_at = self._clock.monotonic() + AGAIN_S

    def _stop(self, reason: str, message: str) -> None:
        stopped_total.labels(reason).inc()
        log.error("partition stopped", partition=self.partition, reason=reason, error=message)
        # The message first: a thread that sees the reason reads the message.
        self.stopped_message, self.stopped = message, reason
        self.give_up()

    # Writing uses a generator that yields wherever it waits for an answer of the log.

    def _write(self) -> None:
        self._outbox.pump()
        self._state = next(self._writing)
        waits = self._state is WriteState.WAITING
        self.unacknowledged_since = (self.unacknowledged_since or self._clock.monotonic()) if waits else None

    def _write_all(self, stage: ChunkStage, found: TakeOver) -> Iterator[WriteState]:
        yield from self._acknowledged([hole_record(found.hole)] if found.hole else [])
        if found.case == "first":
            yield from self._advance(found.progress)
        while True:
            emission = stage.due(self._clock.now_ms())
            if emission is None:
                yield from self._commit_idle(stage)
            elif emission.progress is None:
                yield from self._sent(emission.records)
                stage.finish(emission)
                self._metrics.count(emission)
                yield WriteState.WRITING
            else:
                yield from self._acknowledged(emission.records)
                yield from self._acknowledged(emission.markers)
                stage.finish(emission)
                self._metrics.count(emission)
                yield from self._advance(emission.progress)

    def _sent(self, records: Sequence[ChunkRecord]) -> Iterator[WriteState]:
        for record in records:
            while not self._outbox.offer(self.partition, record.key, record.value, record.headers(self._chain)):
                yield WriteState.WAITING

    def _acknowledged(self, records: Sequence[ChunkRecord]) -> Iterator[WriteState]:
        """Send the records, then wait until these and all earlier records are acknowledged."""
        yield from self._sent(records)
        while not self._outbox.empty:
            yield WriteState.WAITING

    def _advance(self, progress: Progress) -> Iterator[WriteState]:
        """Write the progress marker, then commit. All output below the progress must be acknowledged before."""
        series_end = yield from self._series_end()
        marker = progress.marker(self._topic_id, series_end)
        record = ChunkRecord(encode_key(ProgressKey()), encode_progress_marker(marker))
        yield from self._acknowledged([record])
        while not self._commit(progress):
            yield from self._pause()

    def _series_end(self) -> Generator[WriteState, None, int]:
        while True:
            try:
                return self._context.log.watermarks(SERIES, [self.partition])[self.partition].high
            except Unavailable:
                yield from self._pause()

    def _commit_idle(self, stage: ChunkStage) -> Iterator[WriteState]:
        progress = stage.progress
        due = self._clock.monotonic() >= self._committed_at + COMMIT_EVERY_S
        if due and progress != self.committed and self._outbox.empty:
            self._commit(progress)
        yield WriteState.IDLE

    def _commit(self, progress: Progress) -> bool:
        """Commit. False: not answered, or refused because the partition is being reassigned; its next owner then
        repeats the work."""
        self._metrics.commits.inc()
        self._committed_at = self._clock.monotonic()
        position = Position(progress.position, encode_progress(progress, self._topic_id))
        try:
            self._context.group.commit({(METRICS, self.partition): position})
        except Unavailable as error:
            self._metrics.commit_failed(error.reason)
            log.warning("not committed", partition=self.partition, reason=error.reason, error=error.message)
            return False
        self.committed = progress
        self._metrics.committed(self.partition, self._clock.now_ms())
        return True

    def _pause(self) -> Iterator[WriteState]:
        until = self._clock.monotonic() + AGAIN_S
        while self._clock.monotonic() < until:
            yield WriteState.WAITING
