"""Samples written into the log from Spark are answers of a store, once, however often the same frame is written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_backfill import register
from spark_backfill.failures import translate_spark_errors
from spark_backfill.source.columns import ARROW_MAP, ARROW_TS
from support.servers.logs import LogFactory
from support.servers.node import Node
from support.spark.sample_streams import read_now
from support.spark.spark import places
from tsdb.model.clock import SystemClock
from tsdb.model.errors import InvalidRequest, TsdbError

COUNT = 40


def frame(spark: SparkSession, now_ms: int) -> DataFrame:
    """Two series; each time twice, of which the later row counts. Values of all sorts."""
    values = np.random.default_rng(3).normal(size=4 * COUNT)
    values.view("u8")[:3] = (0x7FF0_0000_0000_0002, 1 << 63, 0x7FF0_0000_0000_0000)
    times = now_ms - 1_000 * (np.arange(4 * COUNT) % COUNT)
    labels = [[("n", str(at // COUNT % 2)), ("__name__", "m")] for at in range(4 * COUNT)]
    columns = [pa.array(labels, ARROW_MAP), pa.array(times * 1_000).cast(ARROW_TS), pa.array(values)]
    return spark.createDataFrame(pa.table(columns, names=["labels", "ts", "value"])).coalesce(1)


def write(made: DataFrame, logs: LogFactory, **options: str) -> None:
    with translate_spark_errors():
        made.write.format("tsdb").options(**places(logs).options(), target="log", **options).mode("append").save()


def test_a_frame_written_twice_leaves_the_same_answers(spark: SparkSession, plain_log: LogFactory) -> None:
    register(spark)
    now_ms = SystemClock().now_ms()
    made = frame(spark, now_ms)
    write(made, plain_log)
    with Node(plain_log.open()) as node:
        node.wait_ready()

        def answers() -> dict[str, list[tuple[int, int]]]:
            found = node.ask('m{n=~"."}', now_ms - 3_600_000, now_ms + 1)
            return {
                labels["n"]: list(zip(ts_ms.tolist(), values.view("u8").tolist(), strict=True))
                for labels, ts_ms, values in found
            }

        once = answers()
        rows = made.toArrow()
        times = (rows["ts"].cast(pa.int64()).to_numpy() // 1_000).tolist()
        bits = rows["value"].combine_chunks().to_numpy(zero_copy_only=False).view("u8").tolist()
        for n in ("0", "1"):
            last = {times[at]: bits[at] for at in range(4 * COUNT) if str(at // COUNT % 2) == n}
            assert once[n] == sorted(last.items())
        write(made, plain_log)
        node.wait_ready()
        assert answers() == once
    assert len(read_now(places(plain_log))) == 8 * COUNT


def test_a_refused_row_fails_the_write_or_is_left_out(spark: SparkSession, plain_log: LogFactory) -> None:
    register(spark)
    now_ms = SystemClock().now_ms()
    old = frame(spark, now_ms - 6 * 24 * 3_600_000)
    with pytest.raises(
        InvalidRequest, match=r"timestamp \d+ \(.*Z\) is 6.0 days old; the limit is 5 days; series m"
    ) as refused:
        write(old, plain_log)
    assert refused.value.reason == "too_old"
    assert read_now(places(plain_log)) == []
    nulls = frame(spark, now_ms).withColumn("value", F.when(F.col("value") > 0, F.col("value")))
    write(nulls.unionByName(old).coalesce(1), plain_log, on_refused="drop")
    kept = nulls.where("value is not null").count()
    assert len(read_now(places(plain_log))) == kept


def test_a_column_that_would_be_lost_is_refused(spark: SparkSession, plain_log: LogFactory) -> None:
    register(spark)
    made = frame(spark, SystemClock().now_ms())
    with pytest.raises(TsdbError, match="has the column host, which would be lost"):
        write(made.withColumn("host", F.lit("a")), plain_log)
