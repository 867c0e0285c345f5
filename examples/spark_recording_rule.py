"""PySpark: a recording rule as a stream. The mean of a metric over five minutes, by job, becomes a series again.

python examples/spark_recording_rule.py kafka://10.0.0.5:9092 http_latency_seconds s3a://bucket/checkpoints/rule

The query needs the extra `kafka-tsdb[spark]` and a Java. A window is written when samples two minutes after its end
have come; later samples of the window are left out. A restart continues at the checkpoint, and a batch that is written
twice leaves the same answers.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spark_backfill

WINDOW, LATE = "5 minutes", "2 minutes"


def means(samples: DataFrame, metric: str) -> DataFrame:
    """Samples of `job:METRIC:mean5m`, one a job and window, at the window's end. samples: samples with the column
    `job`.
    """
    by_job = (
        samples.withWatermark("ts", LATE)
        .groupBy(F.window("ts", WINDOW).alias("window"), F.coalesce("job", F.lit("")).alias("job"))
        .agg(F.mean("value").alias("value"))
    )
    labels = F.create_map(F.lit("__name__"), F.lit(f"job:{metric}:mean5m"), F.lit("job"), F.col("job"))
    return by_job.select(labels.alias("labels"), F.col("window.end").alias("ts"), "value")


def recording_rule(
    spark: SparkSession, log: dict[str, str], metric: str, checkpoint: str, start: str = "latest"
) -> DataStreamWriter:
    """The query, not started. log: options of the log, for the source and the sink. start: time of the first run."""
    spark_backfill.register(spark)
    # Only this metric leaves the log. Its label `job` is a column.
    samples = spark.readStream.format("tsdb").options(**log, selector=metric, wide="job", start=start).load()
    return (
        means(samples, metric)
        .writeStream.format("tsdb")
        .options(**log)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
    )


def main(log: str, metric: str, checkpoint: str) -> None:
    # A state partition costs a task in every batch: 4 are enough for some thousand jobs.
    spark = SparkSession.builder.appName("recording_rule").config("spark.sql.shuffle.partitions", 4).getOrCreate()
    query = recording_rule(spark, {"log": log}, metric, checkpoint).trigger(processingTime="30 seconds").start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
