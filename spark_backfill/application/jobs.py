"""Jobs: the work of each kind on Spark, as the application runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING

from spark_backfill.application.result import NewWindowsResult
from spark_backfill.application.runner import Job
from spark_backfill.application.runs import DOWNSAMPLE, MERGE_LATE, VERIFY, JobRun
from spark_backfill.application.verify_range import verify_range
from spark_backfill.building.options import BuildOptions
from spark_backfill.failures import translate_spark_errors
from spark_backfill.jobs.downsample.job import DownsampleOptions, downsample
from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from spark_backfill.jobs.verify.job import VerifyOptions, verify
from spark_backfill.jobs.verify.result import VerifyResult
from spark_backfill.result import JobResult
from tsdb.model.clock import Clock
from tsdb.model.meta import MetaSettings
from tsdb.ops.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL_PROPERTY = "spark.scheduler.pool"
JOBS_POOL = "jobs"

log = get_logger(__name__)

LastOk = Callable[[], JobRun | None]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of the kinds of jobs. Without a history in `build` only `verify` runs, on log and `chunks`."""

    build: BuildOptions
    meta: MetaSettings
    merge_late: MergeLateOptions = field(default_factory=lambda: MergeLateOptions(apply=True))
    downsample: DownsampleOptions = field(default_factory=DownsampleOptions)


def spark_jobs(spark: SparkSession, options: JobOptions, last_verified: LastOk) -> dict[str, Job]:
    """The jobs by kind. last_verified: the last verification with result ok."""
    places, meta = options.build.places, options.meta

    def fold(clock: Clock) -> JobResult:
        return merge_late(spark, places, meta, options.merge_late, clock)

    def derive(clock: Clock) -> JobResult:
        return downsample(spark, places, meta, options.downsample, clock)

    def compare(clock: Clock) -> JobResult:
        return verify_new(spark, options.build, last_verified(), clock)

    works = {MERGE_LATE: fold, DOWNSAMPLE: derive, VERIFY: compare}
    return {kind: Job(partial(_run, spark, kind, work), partial(_cancel, spark, kind)) for kind, work in works.items()}


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
