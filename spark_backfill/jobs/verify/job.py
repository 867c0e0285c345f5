"""The job: compare log, `chunks` and history for a range of windows, by pack and window; repair on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import TYPE_CHECKING

from spark_backfill.building.items import Item, LateItem
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import items_of, plan_partitions
from spark_backfill.jobs.verify.findings import Finding, Horizon, KeyDigests, Location, Problem, findings_of
from spark_backfill.jobs.verify.gather import KeySeen, Scope, TopicStretch, from_chunks, from_history, from_log, keys_in
from spark_backfill.jobs.verify.horizons import stage_horizons, with_history
from spark_backfill.jobs.verify.repair import repair
from spark_backfill.persisted import persisted
from spark_backfill.result import PackDifference, VerifyResult
from spark_backfill.writing.loader_wait import JobEnds, wait_for_loader
from tsdb.chunks.late_scan import Windows
from tsdb.codec.chunk.key import ChunkKey, WindowKey, decode_key, encode_key
from tsdb.log.interface import CHUNKS, Log
from tsdb.model.clock import Clock, SystemClock

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

NAME = "verify"
ROWS_MAX = 1_000  # Most rows of a report; the counts include all findings.
STRETCH_RECORDS = 20_000  # Records of `chunks` that one task reads.
EARLIER_MS = 24 * 3600 * 1000  # More than clocks of brokers and senders differ.
SPLIT_BYTES = 256 << 20  # History that one statement searches for windows, so that it ends within its time limit.
SCANS_MAX = 200  # Most tasks that read history; a task sends one statement after another.


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """packs: compare only these; None: all. history: compare history too.

    mend: repair, wait for the loader for at most loader_timeout_s, and compare again. tasks: minimum number.

    """

    windows: Windows
    packs: frozenset[int] | None = None
    history: bool = True
    mend: bool = False
    loader_timeout_s: float = 600.0
    tasks: int = 8


def verify(
    spark: SparkSession, build: BuildOptions, options: VerifyOptions, clock: Clock | None = None
) -> VerifyResult:
    """Compare, and with `mend` repair and compare again. The result is ok when the last comparison has no findings.

    Raises LostOffsets (before_retention), InvalidRequest (too_recent), Unavailable (not_started, not_loaded), and with
    `mend` Unavailable (loader_behind).
    """
    run = _Run(spark, build, options, clock or SystemClock())
    with run.compared() as findings:
        return run.mended(findings) if options.mend else run.result(findings)


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
            spans = chunk_spans(log, options.windows.start_ms)
        self._ends = {number: end for number, (_, end) in spans.items()}
        self._stretches = list(_stretches_of(spans))

    def findings(self) -> RDD[Finding]:
        """All differences, in no order. Unless they are persisted, each action on them compares again."""
        tasks = max(self._options.tasks, self._context.defaultParallelism)
        self._context.setJobDescription(f"{NAME}: log, chunks and history")
        seen = self._gathered().reduceByKey(KeyDigests.plus, tasks)
        return seen.flatMap(partial(_findings, self._horizons, self._build.times.window_ms))

    @contextmanager
    def compared(self) -> Iterator[RDD[Finding]]:
        """The differences that last, persisted for the block."""
        with persisted(self.findings()) as found:
            lasting = self._lasting(found)
            if lasting is found:
                yield found
                return
            with persisted(lasting):
                yield lasting

    def _lasting(self, found: RDD[Finding]) -> RDD[Finding]:
        """Findings without the keys that got a record in `chunks` since the plan.

        The chunk stage, folds and imports write meanwhile, and their records reach history before it is read.
        """
        if not found.count():  # From here on the comparison reads history.
            return found
        with self._build.places.open_log() as log:
            marks = log.watermarks(CHUNKS, sorted(self._ends))
        stretches = list(_stretches_of({number: (self._ends[number], marks[number].high) for number in self._ends}))
        if not stretches:
            return found
        self._context.setJobDescription(f"{NAME}: records since the plan")
        written = self._context.parallelize(stretches, len(stretches))
        changed = written.mapPartitions(partial(keys_in, self._build, self._scope)).distinct()
        return found.keyBy(_key_of).subtractByKey(changed.map(_as_pair)).values()

    def result(self, findings: RDD[Finding]) -> VerifyResult:
        """Counts by place and problem, and the first rows of the report."""
        totals = Counter(dict(findings.map(_total).reduceByKey(add).collect()))
        rows = findings.map(_place).reduceByKey(add).takeOrdered(ROWS_MAX)
        places = list(Location) if self._options.history else [Location.CHUNKS]
        return VerifyResult(
            ok=not totals,
            rows=tuple(PackDifference(*cell, keys=count) for cell, count in rows),
            from_ms=self._options.windows.start_ms,
            to_ms=self._options.windows.end_ms,
            items=len(self._items),
            problems=sum(totals.values()),
            job=NAME,
            **{f"{place.value}_{one.value}": totals[place.value, one.value] for place in places for one in Problem},
        )

    def mended(self, findings: RDD[Finding]) -> VerifyResult:
        """Repair all findings; return the result of a second comparison."""
        before = findings.count()
        if not before:
            return replace(self.result(findings), found=0, repaired=0, written=0)
        done = repair(self._spark, self._build, findings, self._items, self._found, self._stretches)
        if self._options.history:
            with self._build.places.open_log() as log:
                ends = JobEnds.of(log, range(log.partitions(CHUNKS)))
                wait_for_loader(log, ends, self._options.loader_timeout_s, self._clock)
        again = _Run(self._spark, self._build, replace(self._options, mend=False), self._clock)
        with again.compared() as left:
            result = again.result(left)
        return replace(result, found=before, repaired=before - result.problems, written=done)

    def _gathered(self) -> RDD[KeySeen]:
        build, scope, context = self._build, self._scope, self._context
        items = context.parallelize(self._items, max(len(self._items), 1))
        parts = [items.mapPartitions(partial(from_log, build, scope))]
        stretches = context.parallelize(self._stretches, max(len(self._stretches), 1))
        parts.append(stretches.mapPartitions(partial(from_chunks, build, scope)))
        if self._options.history:
            with build.places.open_history() as history:
                splits = history.row_splits(max(self._options.tasks, history.chunk_bytes() // SPLIT_BYTES))
            ranges = context.parallelize(splits, min(len(splits), SCANS_MAX))
            parts.append(ranges.mapPartitions(partial(from_history, build, scope)))
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


def chunk_spans(log: Log, start_ms: int) -> dict[int, tuple[int, int]]:
    """[first offset, end offset) of the records of `chunks` that may belong to windows from start_ms on, by partition.

    A window is closed, late samples come, and imports and folds are written only after its start, so no earlier record
    is one of its chunks. Raises as the log does.
    """
    marks = log.watermarks(CHUNKS, range(log.partitions(CHUNKS)))
    found = log.offsets_for_times(CHUNKS, dict.fromkeys(marks, max(start_ms - EARLIER_MS, 0)))
    spans = {}
    for number, each in marks.items():
        first = found[number]
        spans[number] = (each.high if first is None else min(max(first, each.low), each.high), each.high)
    return spans


def _stretches_of(spans: Mapping[int, tuple[int, int]]) -> Iterator[TopicStretch]:
    """Stretches of [first offset, end offset) of each partition."""
    for number, (begin, end) in spans.items():
        for first in range(begin, end, STRETCH_RECORDS):
            yield TopicStretch(number, first, min(first + STRETCH_RECORDS, end))


def _key_of(finding: Finding) -> bytes:
    return encode_key(finding.key)


def _as_pair(key: bytes) -> tuple[bytes, None]:
    return key, None


def _findings(horizons: Mapping[int, Horizon], window_ms: int, pair: KeySeen) -> Iterator[Finding]:
    key = decode_key(pair[0][1])
    assert isinstance(key, ChunkKey | WindowKey), "no others are in scope"
    return findings_of(key, pair[1], horizons, window_ms)


def _total(finding: Finding) -> tuple[tuple[str, str], int]:
    return (finding.place.value, finding.problem.value), 1


# The first fields of a PackDifference: window first, so that a report reads in the order of time.
_Cell = tuple[int, str, str, str, str]


def _place(finding: Finding) -> tuple[_Cell, int]:
    key = finding.key
    pack, kind = (f"{key.pack_id:016x}", key.kind.name.lower()) if isinstance(key, ChunkKey) else ("", "marker")
    return (key.window_start_ms, pack, kind, finding.place.value, finding.problem.value), 1
