"""PySpark: read history as a DataFrame, and reduce it to daily means. Needs the extra `kafka-tsdb[spark]` and a Java.

python examples/spark_history.py cassandra://10.0.0.7/tsdb 'node_load1{job="node"}' 2024-01-01 2024-02-01
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_backfill


def daily_means(spark: SparkSession, history: str, selector: str, start: datetime, end: datetime) -> DataFrame:
    """Mean, highest value and number of samples by instance and day. start is included, end is excluded."""
    spark_backfill.register(spark)
    samples = (
        spark.read.format("tsdb")
        .option("history", history)
        .option("selector", selector)
        .option("start_ms", int(start.timestamp() * 1000))
        .option("end_ms", int(end.timestamp() * 1000))
        .option("wide", "instance")  # The label becomes a column.
        .load()
    )
    day = F.date_trunc("day", "ts").alias("day")
    return (
        samples.groupBy("instance", day)
        .agg(F.mean("value").alias("mean"), F.max("value").alias("highest"), F.count("value").alias("samples"))
        .orderBy("instance", "day")
    )


def main(history: str, selector: str, start: str, end: str) -> None:
    spark = SparkSession.builder.appName("spark_history").getOrCreate()
    try:
        first, last = (datetime.fromisoformat(day).replace(tzinfo=UTC) for day in (start, end))
        daily_means(spark, history, selector, first, last).show()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
