"""The job: compare log, `chunks` and history for a range of windows, by pack and window; repair on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import TYPE_CHECKING

from spark_backfill.building.items import Item, LateItem
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import items_of, plan_partitions
from spark_backfill.summary import Figure, JobSummary
from spark_backfill.verify.findings import Finding, Horizon, findings_of
from spark_backfill.verify.gather import KeySeen, Scope, TopicStretch, from_chunks, from_history, from_log
from spark_backfill.verify.horizons import stage_horizons, with_history
from spark_backfill.verify.repair import repair
from spark_backfill.verify.seen import Seen
from spark_backfill.writing.loader_wait import JobEnds, wait_for_loader
from tsdb.chunks.late_scan import Windows
from tsdb.codec.chunk.key import ChunkKey, WindowKey, decode_key
from tsdb.log.interface import CHUNKS, Log
from tsdb.model.clock import Clock, SystemClock

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

NAME = "verify"
ROWS_MAX = 1_000  # Rows of a report; the counts include all findings.
STRETCH_RECORDS = 20_000  # Records of `chunks` that one task reads.


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """packs: only these; None: all. history: compare history too.

    mend: repair, wait for the loader for at most loader_timeout_s, and compare again. tasks: minimum number.
    """

    windows: Windows
    packs: frozenset[int] | None = None
    history: bool = True
    mend: bool = False
    loader_timeout_s: float = 600.0
    tasks: int = 8


def verify(spark: SparkSession, build: BuildOptions, options: VerifyOptions, clock: Clock | None = None) -> JobSummary:
    """Compare, and with `mend` repair and compare again. The summary is ok when the last comparison has no findings.

    Raises LostOffsets (before_retention), InvalidRequest (too_recent), Unavailable (not_started, not_loaded), and with
    `mend` Unavailable (loader_behind).
    """
    run = _Run(spark, build, options, clock or SystemClock())
    return run.mended() if options.mend else run.summary(run.findings(), {})


class _Run:
    def __init__(self, spark: SparkSession, build: BuildOptions, options: VerifyOptions, clock: Clock) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._build = build
        self._options = options
        self._scope = Scope(options.windows, options.packs)
        self._clock = clock
        with build.places.open_log() as log:
            self._found = plan_partitions(log, options.windows, build.times)
            # Read before the data, so that every key up to a horizon must be found.
            self._horizons = stage_horizons(log, self._found, options.windows.end_ms)
            if options.history:
                self._horizons = with_history(log, build, self._horizons)
            self._items = list(self._due_items(log))
            self._stretches = list(_stretches_of(log))

    def findings(self) -> RDD[Finding]:
        """All differences. Persisted, because they are used twice: counted and listed."""
        tasks = max(self._options.tasks, self._context.defaultParallelism)
        self._context.setJobDescription(f"{NAME}: log, chunks and history")
        seen = self._gathered().reduceByKey(Seen.plus, tasks)
        return seen.flatMap(partial(_findings, self._horizons, self._build.times.window_ms)).persist()

    def summary(self, findings: RDD[Finding], more: Mapping[str, Figure]) -> JobSummary:
        """Counts by place and problem, and the first rows of the report."""
        totals = Counter(dict(findings.map(_total).reduceByKey(add).collect()))
        rows = findings.map(_place).reduceByKey(add).takeOrdered(ROWS_MAX)
        windows = self._options.windows
        figures: dict[str, Figure] = {"from_ms": windows.start_ms, "to_ms": windows.end_ms, "items": len(self._items)}
        problems: dict[str, Figure] = {"_".join(what): totals[what] for what in sorted(totals)}
        report = tuple(_row(place, count) for place, count in rows)
        return JobSummary(NAME, not totals, {**figures, "problems": sum(totals.values()), **problems, **more}, report)

    def mended(self) -> JobSummary:
        """Repair all findings; return the summary of a second comparison."""
        findings = self.findings()
        before = findings.count()
        if not before:
            return self.summary(findings, {"repaired": 0})
        done = repair(self._spark, self._build, findings, self._items, self._found, self._stretches)
        if self._options.history:
            with self._build.places.open_log() as log:
                ends = JobEnds.of(log, range(log.partitions(CHUNKS)))
                wait_for_loader(log, ends, self._options.loader_timeout_s, self._clock)
        again = _Run(self._spark, self._build, replace(self._options, mend=False), self._clock)
        left = again.findings()
        return again.summary(left, {"found": before, "repaired": before - left.count(), "written": done})

    def _gathered(self) -> RDD[KeySeen]:
        build, scope, context = self._build, self._scope, self._context
        items = context.parallelize(self._items, max(len(self._items), 1))
        parts = [items.mapPartitions(partial(from_log, build, scope))]
        stretches = context.parallelize(self._stretches, max(len(self._stretches), 1))
        parts.append(stretches.mapPartitions(partial(from_chunks, build, scope)))
        if self._options.history:
            with build.places.open_history() as history:
                ranges = history.token_ranges(self._options.tasks)
            parts.append(context.parallelize(ranges, len(ranges)).mapPartitions(partial(from_history, build, scope)))
        return context.union(parts)

    def _due_items(self, log: Log) -> Iterator[Item]:
        """Work items without the late minutes that the chunk stage has not reached yet."""
        due = []
        for one in self._found:
            position = self._horizons[one.partition].position
            due.append(replace(one, late_end=max(one.late_first, min(one.late_end, position))))
        for item in items_of(log, due, self._options.windows, self._build.times):
            if not isinstance(item, LateItem) or item.first_offset < item.end_offset:
                yield item


def _stretches_of(log: Log) -> Iterator[TopicStretch]:
    for number, marks in log.watermarks(CHUNKS, range(log.partitions(CHUNKS))).items():
        for first in range(marks.low, marks.high, STRETCH_RECORDS):
            yield TopicStretch(number, first, min(first + STRETCH_RECORDS, marks.high))


def _findings(horizons: Mapping[int, Horizon], window_ms: int, pair: KeySeen) -> Iterator[Finding]:
    key = decode_key(pair[0][1])
    assert isinstance(key, ChunkKey | WindowKey), "no others are in scope"
    return findings_of(key, pair[1], horizons, window_ms)


def _total(finding: Finding) -> tuple[tuple[str, str], int]:
    return (finding.place.value, finding.problem.value), 1


# (window, pack, kind, place, problem): window first, so that a report reads in the order of time.
_Cell = tuple[int, str, str, str, str]


def _place(finding: Finding) -> tuple[_Cell, int]:
    key = finding.key
    pack, kind = (f"{key.pack_id:016x}", key.kind.name.lower()) if isinstance(key, ChunkKey) else ("", "marker")
    return (key.window_start_ms, pack, kind, finding.place.value, finding.problem.value), 1


def _row(cell: _Cell, count: int) -> dict[str, Figure]:
    window_ms, pack, kind, place, problem = cell
    return {
        "window_ms": window_ms,
        "pack": pack,
        "kind": kind,
        "place": place,
        "problem": problem,
        "keys": count,
    }
