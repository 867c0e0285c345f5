"""The job: append a tick to each partition, wait until history has all records before it, derive the stale windows,
and record the downsampled span."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_backfill.jobs.downsample.sources import source_packs
from spark_backfill.jobs.downsample.work import DownsampleCounts, DownsampleTask
from spark_backfill.places import Places
from spark_backfill.result import DownsampleResult
from spark_backfill.writing.import_run import DAY_MS, DOWNSAMPLE, begin_run
from spark_backfill.writing.loader_wait import wait_for_chunks, wait_until_seen
from tsdb.history.interface import ChunkStore, WindowRange
from tsdb.log.downsampled import Downsampled, read_downsampled, write_downsampled
from tsdb.log.interface import Log
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.errors import ConfigMismatch
from tsdb.model.meta import MetaSettings
from tsdb.model.placement import PlacementRule
from tsdb.model.resolution import RESOLUTIONS_MS
from tsdb.model.window import EPOCH_MS, floor_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "downsample"


@dataclass(frozen=True, slots=True)
class DownsampleOptions:
    """start_ms: first sample time to check; None: all of history. dry_run: count stale windows and write nothing.

    again: treat every window as stale; needed after an import that was still writing when another run began.
    loader_timeout_ms: longest wait for chunk stage and loader, before and after the work. tasks: number of tasks; by
    default the session's parallelism.
    """

    start_ms: int | None = None
    dry_run: bool = False
    again: bool = False
    loader_timeout_ms: int = 900_000
    tasks: int | None = None


def downsample(
    spark: SparkSession, places: Places, meta: MetaSettings, options: DownsampleOptions, clock: Clock | None = None
) -> DownsampleResult:
    """Derive series for every window that has no derived samples, or newer samples than they have.

    Windows of the last least hold + 1 day are left out: they may still be in memory. Raises ConfigMismatch (time_set)
    when the window length is not a multiple of each resolution, Unavailable (loader_behind, history_behind), and as log
    and history do.
    """
    for resolution, length_ms in RESOLUTIONS_MS.items():
        if meta.time_set.window_ms % length_ms:
            raise ConfigMismatch(
                f"windows of {meta.time_set.window_ms} ms, of the time set {meta.time_set.name}, are no multiple of"
                f" {resolution}: nothing can be downsampled",
                reason="time_set",
            )
    run = _Run(spark, places, meta, options, clock or SystemClock())
    return run.look() if options.dry_run else run.make()


class _Run:
    def __init__(
        self, spark: SparkSession, places: Places, meta: MetaSettings, options: DownsampleOptions, clock: Clock
    ) -> None:
        self._context = spark.sparkContext
        self._places = places
        self._meta = meta
        self._options = options
        self._clock = clock
        self._tasks = options.tasks or self._context.defaultParallelism

    def look(self) -> DownsampleResult:
        with self._places.open_history() as history:
            times = self._meta.time_set
            end_ms = floor_to(self._clock.now_ms() - times.least_hold_ms - DAY_MS, times.window_ms)
            span = Downsampled(self._start_ms(history, end_ms), end_ms)
        return _result(span, self._derive({}, span), dry_run=True)

    def make(self) -> DownsampleResult:
        partitions = range(self._meta.partitions)
        with self._places.open_log() as log, self._places.open_history() as history:
            # Each run appends new ticks, so its samples win over those that an earlier run derived from fewer samples.
            run = begin_run(log, f"{NAME}-{uuid.uuid4().hex[:16]}", partitions, DOWNSAMPLE, self._clock)
            end_ms = floor_to(run.end_ms(self._meta.time_set), self._meta.time_set.window_ms)
            standing = wait_for_chunks(history, run, end_ms, self._timeout_s, self._clock)
            span = Downsampled(self._start_ms(history, end_ms), end_ms)
            done = self._derive(run.orders, span)
            # Samples derived from a part of the rows would win over better ones until another run derives them again.
            standing.check(history)
            # Done before the span is recorded, because a querier that knows the span must not use an index without the
            # new series.
            wait_until_seen(log, partitions, run.job_id, self._timeout_s, self._clock)
            if not done.refused:
                _record_span(log, span)
        return _result(span, done, dry_run=False)

    def _derive(self, orders: Mapping[int, int], span: Downsampled) -> DownsampleCounts:
        """Count or write. orders: order of the chunks by partition; empty: count and write nothing."""
        self._context.setJobDescription(f"{NAME}: [{span.start_ms}, {span.end_ms})")
        windows = WindowRange(span.start_ms, span.end_ms)
        task = DownsampleTask(
            self._places,
            PlacementRule(self._meta.placement_labels),
            orders,
            windows,
            self._meta.time_set.window_ms,
            self._meta.part_bytes_max,
            self._options.again,
        )
        return (
            source_packs(self._context, self._places, windows, self._tasks)
            .mapPartitions(task)
            .fold(DownsampleCounts(), DownsampleCounts.plus)
        )

    def _start_ms(self, history: ChunkStore, end_ms: int) -> int:
        """Start of the first window to check."""
        epochs = history.epochs()
        # The phase of a series shifts its epochs into the past by less than one epoch.
        first_ms = (epochs[0] - 1) * EPOCH_MS if epochs else end_ms
        asked_ms = first_ms if self._options.start_ms is None else self._options.start_ms
        return min(floor_to(asked_ms, self._meta.time_set.window_ms), end_ms)

    @property
    def _timeout_s(self) -> float:
        return self._options.loader_timeout_ms / 1000


def _record_span(log: Log, span: Downsampled) -> None:
    recorded = read_downsampled(log)
    for resolution in RESOLUTIONS_MS:
        write_downsampled(log, resolution, span.joined(recorded.get(resolution)))


def _result(span: Downsampled, done: DownsampleCounts, *, dry_run: bool) -> DownsampleResult:
    return DownsampleResult(
        ok=not done.refused,
        dry_run=dry_run,
        start_ms=span.start_ms,
        end_ms=span.end_ms,
        packs=done.packs,
        windows=done.windows,
        windows_stale=done.stale,
        samples_derived=done.samples,
        chunks_written=done.chunks,
        windows_refused=done.refused,
    )
