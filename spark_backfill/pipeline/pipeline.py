"""Pipeline: the driver of the streaming chunk stage, from take-over until it is told to stop or all there is is done.

The driver holds the fence, begins the query, and after each batch settles what it did: it learns of it from the query's
own progress, which Spark makes once a batch is done. No sample and no chunk passes through it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from chunker.takeover import TakeOver, take_over
from chunker.ticker import IDLE_S
from spark_backfill.building.options import BuildOptions
from spark_backfill.failures import translate_spark_errors
from spark_backfill.pipeline.counts import OBSERVED, SUMS, count_batch, show_place
from spark_backfill.pipeline.fence import Fence
from spark_backfill.pipeline.idle import IdleTicks
from spark_backfill.pipeline.offsets import offset_of
from spark_backfill.pipeline.planner import BatchLimits
from spark_backfill.pipeline.settling import Settling
from spark_backfill.pipeline.source import FOUND, LIMITS, NAME, ChunkStageSource, found_text
from tsdb.chunks.progress import Progress
from tsdb.chunks.records import hole_record
from tsdb.log.interface import CHUNKS, METRICS, Log, Position, Watermarks
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TURN_S = 0.25  # How soon after a batch it is settled; bounds how long a stop waits.
LOOK_EVERY_S = 1.0  # For ticks and lag.
LOOKS_UNTIL_TICK = 3  # One that sees the end, one that sees it again, one that has waited there.
FLUSH_S = 30.0

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """build: how tasks build. checkpoint: URL of a folder that all of the cluster reach; one pipeline's own.

    trigger_s: how often a batch begins; None: do all there is, in several batches, and end.
    """

    build: BuildOptions
    checkpoint: str
    trigger_s: float | None = 10.0
    limits: BatchLimits = field(default_factory=BatchLimits)


@dataclass(slots=True)
class Totals:
    """What one run did: batches with work, and the sums of their receipts."""

    batches: int = 0
    items: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUMS, 0))

    def add(self, items: int, sums: Mapping[str, int]) -> None:
        """One batch."""
        self.batches += items > 0
        self.items += items
        for name, number in sums.items():
            self.sums[name] += number


class Pipeline:
    """One run. `stop` from any thread; `run` on one. on_turn: called on that thread, a few times a second."""

    def __init__(
        self,
        spark: SparkSession,
        log_: Log,
        options: PipelineOptions,
        clock: Clock,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self._spark = spark
        self._log = log_
        self._options = options
        self._clock = clock
        self._on_turn = on_turn
        self._stopping = threading.Event()
        self._seen_batch = -1
        self._look_at = 0.0
        self.totals = Totals()
        self.committed: Mapping[int, Progress] = {}
        """As the group's commits say; replaced at every commit."""
        self.marks: Mapping[int, Watermarks] = {}
        """Of the log, by partition, as last seen."""

    @property
    def lag_records(self) -> int:
        """Of all partitions, as last seen."""
        return sum(mark.high - self.committed[n].position for n, mark in self.marks.items() if n in self.committed)

    def stop(self) -> None:
        """End now. A batch under way is dropped, and done again by whoever comes next."""
        self._stopping.set()

    def run(self, fence: Fence) -> Totals:
        """Until stopped, or with trigger_s None until everything is done.

        Raises Unavailable (group_in_use) when others are in the group, what a take-over raises (chunk_gap, commit_*),
        and what failed the query. What is done by then is settled.
        """
        with fence:
            settling = self._take_over(fence)
            ticks = IdleTicks(self._log, self._options.build, self._clock)
            if self._options.trigger_s is None:
                self._tick_first(settling, ticks)
            if self._stopping.is_set():
                return self.totals
            with translate_spark_errors():
                query = self._begin(settling.committed)
            try:
                with self._failures():
                    self._watch(query, fence, settling, ticks)
            finally:
                with self._failures():
                    self._end(query, settling)
        return self.totals

    def _take_over(self, fence: Fence) -> Settling:
        commits = fence.committed()
        found = {number: self._found(number, commit) for number, commit in sorted(commits.items())}
        known = {number: one.progress for number, one in found.items() if one.case == "commit"}
        settling = Settling(self._log, fence, known)
        if not settling.settle({number: one.progress for number, one in found.items()}):
            raise Unavailable("the first progress could not be committed", reason="log_unavailable")
        return settling

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

    def _tick_first(self, settling: Settling, ticks: IdleTicks) -> None:
        """All that there is includes what only waits for the log's time: later ticks are for a later run."""
        for number in range(LOOKS_UNTIL_TICK):
            if number:
                self._clock.sleep(IDLE_S)
            self._look(settling, ticks)
        self._log.flush(FLUSH_S)

    def _begin(self, committed: Mapping[int, Progress]) -> StreamingQuery:
        from pyspark.sql import functions as F

        options = self._options
        self._spark.dataSource.register(ChunkStageSource)
        reader = self._spark.readStream.format(NAME).options(**options.build.as_options())
        receipts = reader.option(FOUND, found_text(committed)).option(LIMITS, json.dumps(asdict(options.limits))).load()
        sums = [F.sum(name).alias(name) for name in SUMS]
        writer = receipts.observe(OBSERVED, *sums).writeStream.format("noop").queryName("tsdb pipeline")
        writer = writer.option("checkpointLocation", options.checkpoint)
        if options.trigger_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{options.trigger_s * 1000:.0f} milliseconds").start()

    def _watch(self, query: StreamingQuery, fence: Fence, settling: Settling, ticks: IdleTicks) -> None:
        while query.isActive and not self._stopping.is_set():
            fence.keep(TURN_S)
            self._settle(query, settling)
            self._look_again(settling, ticks)
            self._on_turn()

    def _end(self, query: StreamingQuery, settling: Settling) -> None:
        """Settle the last batch, then say what failed the query, if anything did."""
        query.stop()
        self._settle(query, settling)
        if (failure := query.exception()) is not None:
            raise failure

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Errors of Spark as ours. Once stopped they are part of the end: the signal that stops the driver may have
        ended workers and JVM before it. Work that was not settled is done again, under the same keys."""
        try:
            with translate_spark_errors():
                yield
        except (TsdbError, OSError) as error:
            if not self._stopping.is_set():
                raise
            log.info("the query ended with the stop", error=str(error))

    def _settle(self, query: StreamingQuery, settling: Settling) -> None:
        """Spark makes a batch's progress once it is done; those not seen yet, in order."""
        with translate_spark_errors():
            fresh = [each for each in query.recentProgress if each.batchId > self._seen_batch]
        for progress in fresh:
            if not settling.settle(offset_of(json.loads(progress.sources[0].endOffset)).progress):
                return
            self._seen_batch = progress.batchId
            self.totals.add(progress.numInputRows, count_batch(progress))
        self.committed = dict(settling.committed)

    def _look_again(self, settling: Settling, ticks: IdleTicks) -> None:
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._look(settling, ticks)

    def _look(self, settling: Settling, ticks: IdleTicks) -> None:
        try:
            marks = self._log.watermarks(METRICS, sorted(settling.committed))
            self.marks = marks
            show_place(settling.committed, marks)
            ticks.look(settling.committed, marks)
        except Unavailable as error:
            log.warning("the log does not answer", reason=error.reason, error=error.message)
