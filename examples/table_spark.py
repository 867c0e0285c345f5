"""Spark's own reader of Iceberg over the table: means of each series by hour.

pip install pyspark==4.1.1
spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 examples/table_spark.py METADATA

METADATA is the path that `tsdb tables check` prints. Iceberg has no runtime for a newer Spark than 4.1 yet.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main(metadata: str) -> None:
    spark = SparkSession.builder.appName("table").getOrCreate()
    samples = spark.read.format("iceberg").load(metadata)
    # Conditions on metric, series_id and ts skip whole files.
    recent = samples.where((F.col("metric") == "example_room_celsius") & (F.expr("ts >= now() - INTERVAL 7 DAYS")))
    room, hour = F.col("labels")["room"].alias("room"), F.date_trunc("hour", "ts").alias("hour")
    means = recent.groupBy("metric", room, hour).agg(F.count("*").alias("samples"), F.avg("value").alias("mean"))
    for row in means.orderBy("room", "hour").collect():
        print(f"{row.metric} {row.room}: {row.samples} samples, mean {row.mean:.2f}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
