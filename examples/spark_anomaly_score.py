"""PySpark: score each sample of the last hours against its series with pandas, and write the scores as series.

python examples/spark_anomaly_score.py kafka://10.0.0.5:9092 'node_load1{job="node"}' 6

A score is the distance from the mean of the 60 samples before, in standard deviations. The scores of `node_load1` are
`node_load1:anomaly_score`, with the same labels. Run it from a scheduler: scores written twice are the same samples.
"""

from __future__ import annotations

import sys
import time

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_backfill

BEFORE = 60


def scores_of_series(samples: pd.DataFrame) -> pd.DataFrame:
    """Scores of one series: the columns labels, ts and value. The first samples have no score."""
    # The log has a sample twice when a sender repeated it; the later row counts.
    ordered = samples.drop_duplicates("ts", keep="last").sort_values("ts")
    before = ordered["value"].shift(1).rolling(BEFORE, min_periods=10)
    scores = (ordered["value"] - before.mean()) / before.std()
    return ordered.assign(value=scores)[scores.abs() < float("inf")][["labels", "ts", "value"]]


def anomaly_scores(samples: DataFrame) -> DataFrame:
    """The scores of all series, under the metric name with `:anomaly_score` behind it."""
    scores = samples.groupBy("series_id").applyInPandas(
        scores_of_series, "labels map<string,string>, ts timestamp, value double"
    )
    renamed = F.transform_values(
        "labels",
        lambda name, value: F.when(name == "__name__", F.concat(value, F.lit(":anomaly_score"))).otherwise(value),
    )
    return scores.withColumn("labels", renamed)


def write_scores(spark: SparkSession, log: dict[str, str], selector: str, start_ms: int) -> None:
    """Score the samples from start_ms on, ms since the epoch, and write the scores. log: options of the log."""
    spark_backfill.register(spark)
    samples = spark.read.format("tsdb").options(**log, source="log", selector=selector, start_ms=start_ms).load()
    anomaly_scores(samples).write.format("tsdb").options(**log, target="log").mode("append").save()


def main(log: str, selector: str, hours: str) -> None:
    spark = SparkSession.builder.appName("anomaly_score").getOrCreate()
    try:
        write_scores(spark, {"log": log}, selector, int((time.time() - 3600 * float(hours)) * 1000))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
