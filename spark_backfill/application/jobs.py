"""Jobs: the work of each kind on Spark, as the application runs it.

Computes the range of a scheduled verification: closed and loaded windows, from the end of the last ok run on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from chunker.takeover import known_progress
from spark_backfill.application.recent import downsample_from_ms, merge_late_from_ms
from spark_backfill.application.result import NewWindowsResult
from spark_backfill.application.runner import Job
from spark_backfill.application.runs import DOWNSAMPLE, MERGE_LATE, VERIFY, JobRun
from spark_backfill.application.scheduler import Scheduler
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import first_whole_ms
from spark_backfill.failures import translate_spark_errors
from spark_backfill.jobs.downsample.job import DownsampleOptions, downsample
from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from spark_backfill.jobs.verify.job import VerifyOptions, verify
from spark_backfill.result import JobResult, VerifyResult
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.late_scan import Windows
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.model.meta import MetaSettings
from tsdb.model.window import floor_to
from tsdb.ops.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL_PROPERTY = "spark.scheduler.pool"
JOBS_POOL = "jobs"

log = get_logger(__name__)

_Ranged = TypeVar("_Ranged", MergeLateOptions, DownsampleOptions)

# A day of the production time set, which repeats windows that were verified before: late samples may have come.
WINDOWS_MIN = 6
WINDOWS_MAX = 600  # Windows of one run; the next run continues. The log of production never has more.


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of the kinds of jobs. Without a history in `build` only `verify` runs, on log and `chunks`. merge_late,
    downsample: each run sets their start_ms.
    """

    build: BuildOptions
    meta: MetaSettings
    merge_late: MergeLateOptions = field(default_factory=lambda: MergeLateOptions(apply=True))
    downsample: DownsampleOptions = field(default_factory=DownsampleOptions)


def spark_jobs(spark: SparkSession, options: JobOptions, past: Scheduler) -> dict[str, Job]:
    """The jobs by kind. past: the runs so far, which the next ones continue."""
    places, meta = options.build.places, options.meta
    times = meta.time_set

    def fold(clock: Clock) -> JobResult:
        rule = options.merge_late
        start_ms = merge_late_from_ms(past.last_ok(MERGE_LATE), past.imported_ms, times, rule.older_than_ms)
        return merge_late(spark, places, meta, _since(rule, start_ms), clock)

    def derive(clock: Clock) -> JobResult:
        start_ms = downsample_from_ms(past.last_ok(DOWNSAMPLE), past.imported_ms, times)
        return downsample(spark, places, meta, _since(options.downsample, start_ms), clock)

    def compare(clock: Clock) -> JobResult:
        return verify_new(spark, options.build, past.last_ok(VERIFY), clock)

    works = {MERGE_LATE: fold, DOWNSAMPLE: derive, VERIFY: compare}
    return {kind: Job(partial(_run, spark, kind, work), partial(_cancel, spark, kind)) for kind, work in works.items()}


def _since(options: _Ranged, start_ms: int | None) -> _Ranged:
    return options if start_ms is None else replace(options, start_ms=start_ms)


def verify_new(spark: SparkSession, build: BuildOptions, last_ok: JobRun | None, clock: Clock) -> NewWindowsResult:
    """Verify the windows since the last ok run."""
    figures: Mapping[str, int] = last_ok.outcome.figures if last_ok and last_ok.outcome else {}
    since_ms = figures.get("to_ms") or None
    with build.places.open_log() as opened:
        found = verify_range(opened, build, since_ms, history=bool(build.places.history))
    if found.unverified:
        log.warning("windows were trimmed before they were verified", windows=found.unverified, since_ms=since_ms)
    if found.windows is None:
        result = VerifyResult(from_ms=since_ms or 0, to_ms=since_ms or 0, items=0, problems=0)
    else:
        result = verify(spark, build, VerifyOptions(found.windows, history=bool(build.places.history)), clock)
    shared = {each.name: getattr(result, each.name) for each in fields(result)}
    return NewWindowsResult(**shared, windows_unverified=found.unverified, windows_left=found.left)


def _run(spark: SparkSession, kind: str, work: Callable[[Clock], JobResult], clock: Clock) -> JobResult:
    context = spark.sparkContext
    # Properties of this thread alone: PySpark gives each Python thread a thread of the JVM.
    context.setJobGroup(_group(kind), kind)
    context.setLocalProperty(POOL_PROPERTY, JOBS_POOL)
    with translate_spark_errors():
        return work(clock)


def _cancel(spark: SparkSession, kind: str) -> None:
    from py4j.protocol import Py4JError

    try:
        spark.sparkContext.cancelJobGroup(_group(kind))
    except (Py4JError, OSError) as error:
        # The signal that ends the application may have ended the JVM, and the job with it.
        log.info("a job could not be cancelled", kind=kind, error=str(error))


def _group(kind: str) -> str:
    return f"tsdb {kind}"


@dataclass(frozen=True, slots=True)
class VerifyRange:
    """windows: None when no window is due. unverified: windows since the last ok run that the log no longer holds.

    left: due windows that a later run verifies.
    """

    windows: Windows | None
    unverified: int = 0
    left: int = 0


def verify_range(log: Log, build: BuildOptions, since_ms: int | None, *, history: bool) -> VerifyRange:
    """The range to verify. since_ms: end of the last range with result ok; None without one. history: whether history
    is compared too.

    Raises Unavailable (not_started) before the first batch of the chunk stage, as decode_commit, and as log and history
    do.

    """
    window_ms = build.times.window_ms
    numbers = range(log.partitions(METRICS))
    end_ms = _emitted_ms(log, numbers)
    if history:
        end_ms = min(end_ms, _loaded_ms(build, numbers))
    end_ms = floor_to(end_ms, window_ms)
    wanted_ms = end_ms - WINDOWS_MIN * window_ms
    if since_ms is not None:
        wanted_ms = min(wanted_ms, floor_to(since_ms, window_ms))
    start_ms = max(wanted_ms, first_whole_ms(log, build.times))
    unverified = 0 if since_ms is None else max(min(start_ms, end_ms) - since_ms, 0) // window_ms
    if start_ms >= end_ms:
        return VerifyRange(None, unverified)
    to_ms = min(end_ms, start_ms + WINDOWS_MAX * window_ms)
    return VerifyRange(Windows(start_ms, to_ms), unverified, (end_ms - to_ms) // window_ms)


def _emitted_ms(log: Log, numbers: range) -> int:
    """Windows that end by this time are emitted in all partitions."""
    with log.group(GROUP_ID) as group:
        commits = group.committed([(METRICS, number) for number in numbers])
    found = []
    for number in numbers:
        _, progress = known_progress(log, number, commits[METRICS, number])
        if progress is None:
            raise Unavailable(f"the chunk stage has never run on partition {number}", reason="not_started")
        found.append(progress.emitted_through_ms)
    return min(found)


def _loaded_ms(build: BuildOptions, numbers: range) -> int:
    """Windows that end by this time are in history in all partitions; 0 before the loader's first commit."""
    with build.places.open_history() as history:
        loaded = history.loaded(build.topic_id)
    return min(loaded[number].emitted_through_ms if number in loaded else 0 for number in numbers)
