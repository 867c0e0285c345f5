"""Export: write series and a time range of history as Parquet, one folder a day, in the columns that imports read."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_backfill import register
from spark_backfill.jobs.exports.day_files import DayFiles
from spark_backfill.places import Places
from spark_backfill.result import ExportResult
from spark_backfill.source.columns import DETAILS, HISTOGRAM, START_TS
from spark_backfill.source.options import RUNS, TimeSpan
from spark_backfill.source.seam import check_loaded, loaded_through
from tsdb.history.claims import ClaimsSnapshot
from tsdb.log.interface import METRICS
from tsdb.model.errors import InvalidRequest

# Rows are runs, so that labels are converted to text once a window and not once a sample.
SCHEMA = (
    "labels map<string,string>, ts array<timestamp>, value array<double>,"
    f" histogram array<{DETAILS[HISTOGRAM].simpleString()}>, start_ts array<timestamp>"
)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """folder: written anew; it must not exist unless `overwrite`. selector: empty: all series. span: sample times.

    partial: write the samples that history has, even when parts of the span are not loaded yet. splits: number of input
    partitions.
    """

    folder: str
    selector: str = ""
    span: TimeSpan = field(default_factory=TimeSpan)
    overwrite: bool = False
    partial: bool = False
    allow_holes: bool = False
    splits: int = 32


def export(spark: SparkSession, places: Places, options: ExportOptions) -> ExportResult:
    """Write every sample once. Without an end in `span`, the export ends where history is no longer complete.

    Raises Unavailable (history_behind) when history does not have all of the span, and (history_replaced) when it was
    emptied or replaced meanwhile; InvalidRequest (folder_exists), and as the source does.
    """
    span, standing = (options.span, None) if options.partial else _whole(places, options.span)
    register(spark)
    files = DayFiles(options.folder)
    if files.exists() and not options.overwrite:
        raise InvalidRequest(f"{options.folder} is there; give another folder, or overwrite it", reason="folder_exists")
    files.clear()
    rows = _sorted(_read(spark, places, options, span), options.splits).mapInArrow(files, "rows bigint").collect()
    if standing is not None:
        with places.open_history() as store:
            standing.check(store)
    files.finish()
    samples = sum(row["rows"] for row in rows)
    return ExportResult(folder=options.folder, samples=samples, start_ms=span.start_ms, end_ms=span.end_ms)


def _read(spark: SparkSession, places: Places, options: ExportOptions, span: TimeSpan) -> DataFrame:
    reader = spark.read.format("tsdb").options(**places.options(), rows=RUNS).schema(SCHEMA)
    given = {"selector": options.selector, "start_ms": span.start_ms, "end_ms": span.end_ms}
    given |= {"splits": options.splits, "allow_holes": str(options.allow_holes).lower(), "partial": "true"}
    return reader.options(**{name: str(value) for name, value in given.items() if value not in (None, "")}).load()


def _sorted(runs: DataFrame, tasks: int) -> DataFrame:
    """Sort by day, so that a task has one open file, then by labels, so that a series compresses well."""
    samples = runs.select(
        F.to_json("labels").alias("labels"), F.inline(F.arrays_zip("ts", "value", HISTOGRAM, START_TS))
    )
    day = F.date_format("ts", "yyyy-MM-dd").alias("day")
    times = F.unix_millis("ts").alias("ts_ms"), F.unix_millis(START_TS).alias("start_ms")
    rows = samples.select(day, "labels", times[0], "value", HISTOGRAM, times[1])
    return rows.repartition(tasks, "day", "labels").sortWithinPartitions("day", "labels", "ts_ms")


def _whole(places: Places, span: TimeSpan) -> tuple[TimeSpan, ClaimsSnapshot]:
    """The span with an end, and the claims of history that it relies on. Raises Unavailable (history_behind) when
    history is not complete up to that end."""
    with places.open_log() as log, places.open_history() as store:
        partitions = log.partitions(METRICS)
        standing = ClaimsSnapshot.read(store, log.topic_id(METRICS))
        if span.end_ms is None:
            span = TimeSpan(span.start_ms, loaded_through(standing.loaded, partitions))
        check_loaded(store, log, partitions, span, "request less, or export the loaded part (--partial)")
    return span, standing
