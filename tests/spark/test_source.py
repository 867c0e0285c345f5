"""Samples written from a DataFrame come back from history, from `chunks` and from the log, whole or filtered."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_backfill import register
from spark_backfill.failures import translate_spark_errors
from spark_backfill.jobs.exports.job import ExportOptions, export
from spark_backfill.source.columns import ARROW_MAP, ARROW_TS
from spark_backfill.source.options import TimeSpan
from support.servers.node import Gateway, label_set
from support.spark.imports import ImportGround
from tsdb.history.rows import signed
from tsdb.log.interface import CHUNKS
from tsdb.model.clock import SystemClock
from tsdb.model.errors import InvalidRequest, Unavailable
from tsdb.model.labels import canonical_labels, parse_labels, series_id

WITHIN_S = 120.0
START_MS, STEP_MS, STEPS = 1_577_836_800_000, 60_000, 300
LABELS = [
    {"__name__": name, "job": "j", "instance": f"i{number}"} for number in range(4) for name in ("up_total", "é{}\"'")
]
Row = tuple[tuple[tuple[str, str], ...], int, int]


def samples() -> pa.Table:
    """Samples of LABELS at STEPS, across a border of windows, with values of all kinds."""
    rng = np.random.default_rng(3)
    count = len(LABELS) * STEPS
    values = rng.normal(size=count)
    values.view("u8")[:4] = (0x7FF0_0000_0000_0002, 0x7FF8_0000_0000_BEEF, 1 << 63, 0x7FF0_0000_0000_0000)
    labels = pa.array([list(each.items()) for each in LABELS for _ in range(STEPS)], ARROW_MAP)
    times = np.tile(START_MS + STEP_MS * np.arange(STEPS), len(LABELS))
    return pa.table({"labels": labels, "ts": pa.array(times * 1000).cast(ARROW_TS), "value": pa.array(values)})


def rows_of(table: pa.Table) -> list[Row]:
    labels = [tuple(sorted(pairs)) for pairs in table["labels"].to_pylist()]
    ts_ms = (table["ts"].cast(pa.int64()).to_numpy() // 1000).tolist()
    bits = table["value"].combine_chunks().to_numpy(zero_copy_only=False).view("u8").tolist()
    return sorted(zip(labels, ts_ms, bits, strict=True))


def write(spark: SparkSession, ground: ImportGround, table: pa.Table, job_id: str = "frame") -> None:
    register(spark)
    frame = spark.createDataFrame(table).repartition(8)
    options = {**ground.places.options(), "job_id": job_id, "wait_s": str(int(WITHIN_S))}
    frame.write.format("tsdb").options(**options).mode("append").save()


def test_a_nan_of_pandas_is_refused_with_the_way_to_write_it(spark: SparkSession, embedded: ImportGround) -> None:
    rows = pd.DataFrame({"labels": [{"__name__": "a"}], "ts": [pd.Timestamp(START_MS, unit="ms")], "value": [np.nan]})
    frame = spark.createDataFrame(rows, "labels map<string,string>, ts timestamp, value double")
    register(spark)
    writing = {**embedded.places.options(), "job_id": "nan", "wait_s": str(int(WITHIN_S))}
    with pytest.raises(InvalidRequest, match=r"pandas NaN.*F\.coalesce") as refused, translate_spark_errors():
        frame.write.format("tsdb").options(**writing).mode("append").save()
    assert refused.value.reason == "null_value"
    as_told = frame.withColumn("value", F.coalesce("value", F.lit(float("nan"))))
    as_told.write.format("tsdb").options(**writing).mode("append").save()
    (row,) = read(spark, embedded).collect()
    assert np.isnan(row["value"])


def read(spark: SparkSession, ground: ImportGround, **options: object) -> DataFrame:
    register(spark)
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("tsdb").options(**ground.places.options(), **given).load()


def at(step: int) -> datetime:
    return datetime.fromtimestamp((START_MS + step * STEP_MS) / 1000, UTC)


def test_a_frame_comes_back_bit_for_bit_whole_or_narrowed(spark: SparkSession, ground: ImportGround) -> None:
    table = samples()
    write(spark, ground, table)
    whole = read(spark, ground, splits=8)
    assert whole.rdd.getNumPartitions() >= 8
    assert rows_of(whole.toArrow()) == rows_of(table)

    # A condition selects the same rows, pushed down or not.
    narrowed = whole.where((whole.ts >= at(10)) & (whole.ts < at(20)) & (whole["labels"]["instance"] == "i1"))
    assert narrowed.count() == 20
    one = series_id(canonical_labels(LABELS[0]))
    assert whole.where(whole.series_id == signed(one)).count() == STEPS
    selected = read(spark, ground, selector='{instance=~"i[01]"}', start_ms=START_MS, end_ms=START_MS + STEP_MS)
    assert selected.count() == 4
    wide = read(spark, ground, wide="instance,rack")
    counted = wide.where(wide.instance == "i2").groupBy("instance", "rack").count().collect()
    assert [tuple(row) for row in counted] == [("i2", None, 2 * STEPS)]

    # Each row has a series and a window. Flattened, the rows are the same samples.
    runs = read(spark, ground, rows="runs", splits=8, partial="true")
    window_ms = ground.shared.time_set.window_ms
    windows = {(START_MS + step * STEP_MS) // window_ms for step in range(STEPS)}
    assert runs.count() == len(LABELS) * len(windows)
    assert rows_of(runs.selectExpr("labels", "inline(arrays_zip(ts, value))").toArrow()) == rows_of(table)
    said = spark.read.format("tsdb").options(**ground.places.options(), rows="runs", partial="true")
    text = said.schema("labels map<string,string>, ts array<timestamp>, value array<double>").load()
    assert rows_of(text.selectExpr("labels", "inline(arrays_zip(ts, value))").toArrow()) == rows_of(table)
    ground.mark_loaded(START_MS + STEPS * STEP_MS)
    some = read(spark, ground, rows="runs", selector='{instance="i1"}', end_ms=START_MS + 10 * STEP_MS)
    assert [row[0] for row in some.selectExpr("sum(size(value))").collect()] == [2 * 10]

    # The same rows again are the same keys.
    held = ground.rows()
    write(spark, ground, table)
    assert ground.rows() == held

    topic = read(spark, ground, source="chunks")
    ends = ground.log.watermarks(CHUNKS, range(ground.shared.partitions))
    assert topic.count() == sum(mark.high - mark.low for mark in ends.values())
    assert {row["what"] for row in topic.select("what").distinct().collect()} == {"chunk"}


@pytest.mark.parametrize("source", ["history", "log", "chunks"])
def test_a_read_that_nothing_matches_is_an_empty_frame(
    spark: SparkSession, embedded: ImportGround, source: str
) -> None:
    register(spark)
    reader = spark.read.format("tsdb").options(**embedded.places.options(), source=source)
    if source == "history":
        reader = reader.option("start_ms", START_MS).option("end_ms", START_MS + STEP_MS)
    assert reader.load().count() == 0


def test_the_log_is_read_as_it_was_written(spark: SparkSession, embedded: ImportGround) -> None:
    gateway = Gateway(embedded.log)
    labels = [label_set(number) for number in range(16)]
    now_ms = SystemClock().now_ms()
    for step in range(5):
        gateway.write(labels, np.full(16, now_ms + step), np.arange(16) + step)
    gateway.write(labels, np.full(16, now_ms), np.full(16, 100.0))
    whole = read(spark, embedded, source="log", splits=9, versions="all")
    expected = [
        (parse_labels(each), now_ms + step, float(n + step)) for step in range(5) for n, each in enumerate(labels)
    ]
    expected += [(parse_labels(each), now_ms, 100.0) for each in labels]
    found = [(pairs, ts_ms, float(np.uint64(bits).view("f8"))) for pairs, ts_ms, bits in rows_of(whole.toArrow())]
    assert sorted(found) == sorted(expected)
    for versions, count in (("all", 6), ("newest", 5)):
        assert read(spark, embedded, source="log", selector='m{n="3"}', versions=versions).count() == count
    assert read(spark, embedded, source="log", start_ms=now_ms + 1).count() == 4 * 16


def test_an_export_gives_the_same_rows_back(spark: SparkSession, embedded: ImportGround, tmp_path: object) -> None:
    table = samples()
    write(spark, embedded, table)
    assert read(spark, embedded, splits=1, split_bytes=4_096).rdd.getNumPartitions() > 8
    folder = f"{tmp_path}/out"
    with pytest.raises(Unavailable, match="nothing is loaded of partition"):
        export(spark, embedded.places, ExportOptions(folder))
    end_ms = START_MS + 100 * STEP_MS
    done = export(spark, embedded.places, ExportOptions(folder, "", TimeSpan(START_MS, end_ms), partial=True))
    assert done.samples == 100 * len(LABELS)
    back = spark.read.parquet(folder).selectExpr(
        "from_json(labels, 'map<string,string>') labels", "timestamp_millis(ts_ms) ts", "value"
    )
    assert rows_of(back.toArrow()) == [row for row in rows_of(table) if row[1] < end_ms]
    with pytest.raises(InvalidRequest, match="is there"):
        export(spark, embedded.places, ExportOptions(folder, partial=True))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"source": "nowhere"}, "option source"),
        ({"splits": "0"}, "option splits"),
        ({"start_ms": "soon"}, "option start_ms"),
        ({"start_ms": "5", "end_ms": "5"}, "is not before"),
        ({"selector": "{"}, "selector"),
        ({"wide": "value"}, "a column already"),
        ({"history": "sqlite:///x", "history_settings": "[]"}, "must be a JSON object"),
    ],
)
def test_a_wrong_option_is_named(spark: SparkSession, options: dict[str, str], said: str) -> None:
    register(spark)
    with pytest.raises((InvalidRequest, PySparkException), match=said):
        spark.read.format("tsdb").options(**options).load().count()


def test_a_too_recent_or_overwriting_frame_is_refused(spark: SparkSession, embedded: ImportGround) -> None:
    register(spark)
    recent = samples().slice(0, 1).set_column(1, "ts", pa.array([SystemClock().now_ms() * 1000]).cast(ARROW_TS))
    with pytest.raises(InvalidRequest, match="newer ones go to the gateway"), translate_spark_errors():
        write(spark, embedded, recent)
    writer = spark.createDataFrame(samples()).write.format("tsdb").options(**embedded.places.options(), job_id="x")
    with pytest.raises(InvalidRequest, match="mode append"), translate_spark_errors():
        writer.mode("overwrite").save()


def test_a_sample_that_was_just_acknowledged_is_read_with_the_log_and_refused_without(
    spark: SparkSession, embedded: ImportGround
) -> None:
    write(spark, embedded, samples())
    embedded.mark_loaded(START_MS + STEPS * STEP_MS)
    now_ms = SystemClock().now_ms()
    Gateway(embedded.log).write([label_set(1)], np.array([now_ms]), np.array([5.0]))
    both = read(spark, embedded, wide="instance")
    assert both.count() == len(LABELS) * STEPS + 1
    assert both.where(both.ts >= datetime.fromtimestamp(now_ms / 1000 - 60, UTC)).count() == 1
    alone = spark.read.format("tsdb").option("history", embedded.places.history).load()
    with pytest.raises(Unavailable, match="add the option log") as refused, translate_spark_errors():
        alone.count()
    assert refused.value.reason == "history_behind"
    ended = alone.where(alone.ts < at(STEPS))  # A pushed condition ends the range too.
    assert ended.count() == len(LABELS) * STEPS
