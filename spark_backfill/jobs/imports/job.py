"""Import: write files into history. At its end all samples are in the log and loaded. A rerun writes the same keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_backfill.jobs.imports.normal_rows import NORMAL_SCHEMA, REJECT, SAMPLE, Normalize
from spark_backfill.jobs.imports.raw_rows import raw_rows
from spark_backfill.jobs.imports.survey import Survey, series_of, survey
from spark_backfill.places import Places
from spark_backfill.result import ImportResult, RefusedCount
from spark_backfill.writing.appender import Announce
from spark_backfill.writing.chunk_writer import SERIES_PER_RANGE, ChunkWriter, Written
from spark_backfill.writing.import_run import ImportRun, begin_run
from spark_backfill.writing.loader_wait import wait_until_seen
from spark_backfill.writing.sorted_batches import RECEIPT_SCHEMA, receipt, sorted_rows, written_by
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.errors import InvalidRequest
from tsdb.model.import_layout import ImportLayout
from tsdb.model.meta import MetaSettings

TOO_RECENT = "too_recent"
SAMPLES_PER_TASK, TASKS_MIN, TASKS_MAX = 2_000_000, 8, 10_000
GROUP = ("partition", "pack_id", "window_start_ms", "range_number")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """job_id: names one input; a second run with it writes the same keys. rejects: folder for refused rows, one JSON
    object each; empty: refused rows are only counted. allow_rejects: the job succeeds in spite of refused rows.
    wait_s: longest wait for the loader after writing; None: no wait. series_per_range: larger packs are split.
    """

    job_id: str
    rejects: str = ""
    allow_rejects: bool = False
    wait_s: float | None = 600.0
    series_per_range: int = SERIES_PER_RANGE


def import_files(
    spark: SparkSession,
    paths: Sequence[str],
    layout: ImportLayout,
    places: Places,
    shared: MetaSettings,
    options: ImportOptions,
    clock: Clock | None = None,
) -> ImportResult:
    """Write every valid row of the files as a sample; count the others by reason and write them to `rejects`.

    A row at or after the run's end (ImportRun.end_ms) is too recent. Raises InvalidRequest (bad_layout, no_input,
    nothing_to_import), ConfigMismatch (other_import), WrongTopic (topic_recreated), Unavailable (loader_behind).
    """
    fingerprint = layout.fingerprint(_files(spark, paths))
    normalize = Normalize(shared.placement_labels, shared.partitions, shared.time_set.window_ms)
    normal = raw_rows(spark, paths, layout).mapInArrow(normalize, NORMAL_SCHEMA).persist(StorageLevel.DISK_ONLY)
    try:
        return _import(spark, normal, fingerprint, places, shared, options, clock or SystemClock())
    finally:
        normal.unpersist()


def _import(
    spark: SparkSession,
    normal: DataFrame,
    fingerprint: str,
    places: Places,
    shared: MetaSettings,
    options: ImportOptions,
    clock: Clock,
) -> ImportResult:
    found = survey(normal, options.series_per_range)
    if not found.samples:
        _write_rejects(normal, None, options.rejects)
        raise InvalidRequest(
            f"no row of the files is a sample; refused: {_shown(found.rejected)}", reason="nothing_to_import"
        )
    with places.open_log() as log:
        run = begin_run(log, options.job_id, found.partitions, fingerprint, clock)
    announced = _announce(series_of(normal), places)
    old = (F.col("what") == SAMPLE) & (F.col("ts_ms") < F.lit(run.end_ms(shared.time_set)))
    done = _write(spark, normal.where(old), found, run, places, shared)
    rejected = {**found.rejected, TOO_RECENT: found.samples - done.rows}
    rejected = {reason: count for reason, count in sorted(rejected.items()) if count}
    if rejected:
        _write_rejects(normal, run.end_ms(shared.time_set), options.rejects)
    with places.open_log() as log:
        if options.wait_s is not None:
            wait_until_seen(log, found.partitions, options.job_id, options.wait_s, clock)
    return _result(options, run, shared, announced, done, rejected)


def _files(spark: SparkSession, paths: Sequence[str]) -> list[tuple[str, int, str]]:
    """(path, bytes, time of change) of every file. Raises InvalidRequest (no_input)."""
    # The content of no file is read for these columns.
    listed = spark.read.format("binaryFile").option("recursiveFileLookup", True).load(list(paths))
    rows = listed.select("path", "length", F.col("modificationTime").cast("string")).collect()
    if not rows:
        raise InvalidRequest(f"there is no file at {', '.join(paths)}", reason="no_input")
    return [(row[0], row[1], row[2]) for row in rows]


def _announce(series: DataFrame, places: Places) -> int:
    """Announce all series. This comes before any chunk, so that a reader of a chunk finds its series."""
    counts = series.mapInArrow(Announce(places), "records bigint").collect()
    return sum(row["records"] for row in counts)


def _write(
    spark: SparkSession, samples: DataFrame, found: Survey, run: ImportRun, places: Places, shared: MetaSettings
) -> Written:
    writer = ChunkWriter(places, run.orders, shared.time_set.window_ms, shared.part_bytes_max)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield receipt(writer.write(sorted_rows(batches)))

    tasks = min(max(found.samples // SAMPLES_PER_TASK, TASKS_MIN), TASKS_MAX)
    ranged = _ranged(spark, samples, found.heavy)
    columns = (*GROUP, "series_id", "ts_ms")
    in_order = (
        ranged.repartition(tasks, *GROUP)
        .sortWithinPartitions(*columns)
        .select(*columns, "value", "histogram", "start_ms")
    )
    return written_by(in_order.mapInArrow(write, RECEIPT_SCHEMA).collect())


def _ranged(spark: SparkSession, samples: DataFrame, heavy: Mapping[int, int]) -> DataFrame:
    """Add range_number: the share of the pack's series that the row's series is in, from the upper bits of its id."""
    if not heavy:
        return samples.withColumn("range_number", F.lit(0))
    bits = spark.createDataFrame(sorted(heavy.items()), "pack_id bigint, _bits int")
    # A pack that is not split has null in _bits. The JVM would treat a shift by 64 as a shift by 0.
    number = F.expr("coalesce(cast(shiftrightunsigned(series_id, 64 - _bits) as int), 0)")
    return samples.join(F.broadcast(bits), "pack_id", "left").withColumn("range_number", number)


def _write_rejects(normal: DataFrame, end_ms: int | None, folder: str) -> None:
    if not folder:
        return
    rejects = normal.where(F.col("what") == REJECT).select("reason", F.col("shown").alias("row"))
    if end_ms is not None:
        recent = normal.where((F.col("what") == SAMPLE) & (F.col("ts_ms") >= F.lit(end_ms)))
        recent = recent.select("series_id", "ts_ms", "value")
        labels = series_of(normal).select("series_id", "canonical").distinct()
        text = F.concat_ws(" ", F.expr("decode(canonical, 'ISO-8859-1')"), F.col("ts_ms"), F.col("value"))
        shown = recent.join(labels, "series_id", "left").select(F.lit(TOO_RECENT).alias("reason"), text.alias("row"))
        rejects = rejects.unionByName(shown)
    rejects.write.mode("overwrite").json(folder)


def _result(
    options: ImportOptions,
    run: ImportRun,
    shared: MetaSettings,
    announced: int,
    done: Written,
    rejected: Mapping[str, int],
) -> ImportResult:
    refused = sum(rejected.values())
    return ImportResult(
        ok=options.allow_rejects or not refused,
        rows=tuple(RefusedCount(reason, count) for reason, count in rejected.items()),
        job_id=options.job_id,
        rows_valid=done.rows,
        samples=done.samples,
        chunks=done.chunks,
        bytes=done.bytes,
        duplicates=done.duplicates,
        conflicts=done.conflicts,
        announced=announced,
        rejected=refused,
        rejects=options.rejects if refused else None,
        end_ms=run.end_ms(shared.time_set),
        loaded=options.wait_s is not None,
    )


def _shown(rejected: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(rejected.items())) or "none"
