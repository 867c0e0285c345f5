"""Pipeline: the driver of the streaming chunk stage, from take-over until a stop or until all records are processed.

The driver joins the group, starts the query, and commits each batch after Spark reports it done in the query's
progress. No sample and no chunk passes through the driver.

It reads Spark's progress reports of the query's batches.

Spark also reports a query that waits, every 10 s. Such a report carries the number of the next batch, which has not
begun; only the report of a batch has the duration of its work.

It reports the state of each partition of a running pipeline, for `/-/ready`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from chunker.takeover import TakeOver, take_over
from chunker.ticker import IDLE_S
from spark_backfill.building.options import BuildOptions
from spark_backfill.failures import WORKER_LATE, translate_spark_errors
from spark_backfill.pipeline.counts import OBSERVED, SUMS, count_batch, places
from spark_backfill.pipeline.group_membership import GroupMembership
from spark_backfill.pipeline.idle import IdleTicks
from spark_backfill.pipeline.offsets import offset_of
from spark_backfill.pipeline.planner import BatchLimits
from spark_backfill.pipeline.progress_committer import ProgressCommitter
from spark_backfill.pipeline.source import FOUND, LIMITS, NAME, ChunkStageSource, found_text
from tsdb.chunks.progress import Progress
from tsdb.chunks.records import hole_record
from tsdb.chunks.stage_metrics import StageMetrics, StagePlace
from tsdb.log.interface import CHUNKS, METRICS, Log, Position, Watermarks
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.health import PartitionHealth
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TURN_S = 0.25  # Interval of the main loop. It is the longest delay of a batch's commit and of a stop.
LOOK_EVERY_S = 1.0  # Interval of ticks and of the lag metric.
LOOKS_UNTIL_TICK = 3  # The first look reads the end, the second finds it unchanged, and the third finds the wait over.
FLUSH_S = 30.0
SIGNAL_WITHIN_S = 1.0  # A signal to all processes of a service may end the JVM before it reaches the driver.

# Spark waits 10 s for the query's planner to connect, by a constant. On a busy machine two of seven starts took longer.
STARTS_MAX = 5

starts_again_total = counter(
    "tsdb_spark_query_starts_again_total",
    "Starts of the chunk stage's query that were repeated, because its Python process did not connect in time.",
)

log = get_logger(__name__)

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_WORK = "addBatch"  # A key of Spark's `durationMs`.


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """build: options of the tasks. checkpoint: URL of a folder that only this pipeline uses and the driver reaches;
    None: a folder of the driver's machine for each run. It saves a new driver at most the work of one batch.

    trigger_s: interval of batches; None: process all records that are there, in several batches, and end.
    """

    build: BuildOptions
    checkpoint: str | None = None
    trigger_s: float | None = 1.0
    limits: BatchLimits = field(default_factory=BatchLimits)


@dataclass(slots=True)
class RunTotals:
    """Counts of one run: batches with work, work items, and the sums of their receipts."""

    batches: int = 0
    items: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUMS, 0))

    def add(self, items: int, sums: Mapping[str, int]) -> None:
        self.batches += items > 0
        self.items += items
        for name, number in sums.items():
            self.sums[name] += number


@contextmanager
def _folder(checkpoint: str | None) -> Iterator[str]:
    """URL of the checkpoint of a run. Only the driver uses it, because the query has no state in its tasks."""
    if checkpoint is not None:
        yield checkpoint
        return
    # A URL with a scheme: Spark would look for a path in its default file system, which may be an object store.
    with TemporaryDirectory(prefix="tsdb-checkpoint-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).as_uri()


class Pipeline:
    """One run of the pipeline. Any thread may call `stop`. on_turn: is called on the thread of `run`, every TURN_S.
    stopping: the event that `stop` sets. Another thread may set it too, but no signal handler (`stop_signals` explains
    why)."""

    def __init__(
        self,
        spark: SparkSession,
        log_: Log,
        options: PipelineOptions,
        clock: Clock,
        on_turn: Callable[[], None] = lambda: None,
        stopping: threading.Event | None = None,
    ) -> None:
        self._spark = spark
        self._log = log_
        self._options = options
        self._clock = clock
        self._on_turn = on_turn
        self._stopping = stopping or threading.Event()
        self._seen_batch = -1
        self._look_at = 0.0
        self._metrics = StageMetrics("spark")
        self.totals = RunTotals()
        self.committed: Mapping[int, Progress] = {}
        """Progress in the group's commits, by partition. Each commit replaces the mapping."""
        self.marks: Mapping[int, Watermarks] = {}
        """Watermarks of the log by partition, as read last."""

    @property
    def lag_records(self) -> int:
        """Sum over all partitions, with the watermarks read last."""
        return sum(place.lag_records or 0 for place in self.places())

    @property
    def last_commit_ms(self) -> Mapping[int, int]:
        """Time of the last commit by partition, ms since the epoch."""
        return self._metrics.last_commit_ms

    def places(self) -> list[StagePlace]:
        """State of every partition now, with the watermarks of the last read. Any thread may call it."""
        return places(self.committed, self.marks, self._clock.now_ms(), self._options.build.times)

    @property
    def has_begun(self) -> bool:
        """Whether the query has done its first batch: its planner runs, and the group's commits were adopted."""
        return self._seen_batch >= 0

    def stop(self) -> None:
        """End now. The batch under way is dropped; the next run or engine repeats its work."""
        self._stopping.set()

    def run(self, membership: GroupMembership) -> RunTotals:
        """Run until `stop`, or with trigger_s None until all records are processed.

        A query whose Python process does not connect in time is started again, at most STARTS_MAX times in all. Raises
        Unavailable (group_in_use) when the group has other members, the errors of a take-over (chunk_gap,
        commit_*), and the error that failed the query. Batches done before the error are committed.
        """
        with membership, _folder(self._options.checkpoint) as checkpoint:
            committer = self._take_over(membership)
            ticks = IdleTicks(self._log, self._options.build, self._clock, self._metrics)
            if self._options.trigger_s is None:
                self._tick_first(committer, ticks)
            starts = 1
            while not self._stopping.is_set():
                try:
                    self._run_query(checkpoint, membership, committer, ticks)
                    break
                except TsdbError as error:
                    if error.reason != WORKER_LATE or self.has_begun or starts == STARTS_MAX:
                        raise
                    starts_again_total.inc()
                    log.warning("the query is started again", starts=starts, error=error.message)
                    starts += 1
        return self.totals

    def _run_query(
        self, checkpoint: str, membership: GroupMembership, committer: ProgressCommitter, ticks: IdleTicks
    ) -> None:
        with translate_spark_errors():
            query = self._begin(checkpoint, committer.committed)
        try:
            with self._failures():
                self._watch(query, membership, committer, ticks)
        finally:
            with self._failures():
                self._end(query, committer)

    def _take_over(self, membership: GroupMembership) -> ProgressCommitter:
        commits = membership.committed()
        found = {number: self._found(number, commit) for number, commit in sorted(commits.items())}
        known = {number: one.progress for number, one in found.items() if one.case == "commit"}
        committer = ProgressCommitter(self._log, membership, known, self._metrics, self._clock)
        if not committer.commit({number: one.progress for number, one in found.items()}):
            raise Unavailable("the first progress could not be committed", reason="log_unavailable")
        return committer

    def _found(self, number: int, commit: Position | None) -> TakeOver:
        found = take_over(self._log, number, commit, self._options.build.times, self._clock)
        log.info(
            "partition begun",
            partition=number,
            case=found.case,
            position=found.progress.position,
            emitted_through_ms=found.progress.emitted_through_ms,
        )
        if found.hole is not None:
            record = hole_record(found.hole)
            self._log.append_sync(CHUNKS, number, record.value, key=record.key)
        return found

    def _tick_first(self, committer: ProgressCommitter, ticks: IdleTicks) -> None:
        """Append ticks before the query starts, so that one run also closes windows that wait only for log time."""
        for number in range(LOOKS_UNTIL_TICK):
            if number:
                self._clock.sleep(IDLE_S)
            self._look(committer, ticks)
        self._log.flush(FLUSH_S)

    def _begin(self, checkpoint: str, committed: Mapping[int, Progress]) -> StreamingQuery:
        from pyspark.sql import functions as F

        options = self._options
        self._spark.dataSource.register(ChunkStageSource)
        reader = self._spark.readStream.format(NAME).options(**options.build.as_options())
        receipts = reader.option(FOUND, found_text(committed)).option(LIMITS, json.dumps(asdict(options.limits))).load()
        sums = [F.sum(name).alias(name) for name in SUMS]
        writer = receipts.observe(OBSERVED, *sums).writeStream.format("noop").queryName("tsdb pipeline")
        writer = writer.option("checkpointLocation", checkpoint)
        if options.trigger_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{options.trigger_s * 1000:.0f} milliseconds").start()

    def _watch(
        self, query: StreamingQuery, membership: GroupMembership, committer: ProgressCommitter, ticks: IdleTicks
    ) -> None:
        while query.isActive and not self._stopping.is_set():
            membership.keep(TURN_S)
            self._commit_progress(query, committer)
            self._look_again(committer, ticks)
            self._on_turn()

    def _end(self, query: StreamingQuery, committer: ProgressCommitter) -> None:
        """Settle the last batch, then raise the error that failed the query, if there is one."""
        query.stop()
        self._commit_progress(query, committer)
        if (failure := query.exception()) is not None:
            raise failure

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Translate errors of Spark. After `stop` they are logged and not raised.

        The signal that stops the driver may have ended workers and JVM first. Uncommitted work is done again,
        under the same keys.
        """
        try:
            with translate_spark_errors():
                yield
        except (TsdbError, OSError) as error:
            if not self._stopping.wait(SIGNAL_WITHIN_S):
                raise
            log.info("the query ended with the stop", error=str(error))

    def _commit_progress(self, query: StreamingQuery, committer: ProgressCommitter) -> None:
        """Commit the batches that Spark reports done and that are not committed yet, in order."""
        for progress in batches_after(query, self._seen_batch):
            if not committer.commit(offset_of(json.loads(progress.sources[0].endOffset)).progress):
                return
            self._seen_batch = progress.batchId
            self.totals.add(progress.numInputRows, count_batch(progress, self._metrics))
        self.committed = dict(committer.committed)

    def _look_again(self, committer: ProgressCommitter, ticks: IdleTicks) -> None:
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._look(committer, ticks)

    def _look(self, committer: ProgressCommitter, ticks: IdleTicks) -> None:
        try:
            marks = self._log.watermarks(METRICS, sorted(committer.committed))
            self.marks = marks
            self.committed = dict(committer.committed)
            for place in self.places():
                self._metrics.show(place)
            ticks.look(committer.committed, marks)
        except Unavailable as error:
            log.warning("the log does not answer", reason=error.reason, error=error.message)


def batches_after(query: StreamingQuery, number: int) -> list[StreamingQueryProgress]:
    """Reports of the batches done after the batch `number`, oldest first.

    Spark keeps the last 100 reports as objects of the JVM. Fetching all of them takes as long as a small batch, so it
    is done only when more than one report may be new.
    """
    last = query.lastProgress
    if last is None or last.batchId <= number:
        return []
    if last.batchId == number + 1:
        return [last] if is_batch(last) else []
    return [each for each in query.recentProgress if each.batchId > number and is_batch(each)]


def is_batch(report: StreamingQueryProgress) -> bool:
    """Whether the report is of a batch that is done. False: the query waits."""
    return BATCH_WORK in report.durationMs


def pipeline_health(running: Pipeline) -> dict[int, PartitionHealth]:
    """A partition is ready when the log's end is known. Lag never makes it unready: no reader depends on a pipeline."""
    commits = running.last_commit_ms
    return {place.partition: _health(place, commits.get(place.partition)) for place in running.places()}


def _health(place: StagePlace, last_commit_ms: int | None) -> PartitionHealth:
    progress = place.progress
    return PartitionHealth(
        place.ready,
        "" if place.ready else "log_unavailable",
        {
            "engine": "spark",
            "lag_records": place.lag_records,
            "windows_overdue": place.windows_overdue,
            "last_commit_ms": last_commit_ms,
            "position": progress.position if progress else None,
            "emitted_through_ms": progress.emitted_through_ms if progress else None,
        },
    )
