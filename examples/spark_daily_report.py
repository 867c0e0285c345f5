"""PySpark: a daily report over history in SQL. Conditions on labels and times are applied before any data is read.

python examples/spark_daily_report.py cassandra://10.0.0.7/tsdb node 2026-01-01 2026-02-01

It prints the plan, too: `PushedFilters` of the scan has the conditions that the source has taken.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

import spark_backfill

REPORT = """
    SELECT instance, date_trunc('day', ts) AS day,
           count(*) AS samples, min(value) AS lowest, max(value) AS highest,
           percentile_approx(value, 0.95) AS p95
    FROM samples
    WHERE __name__ = 'node_load1' AND job = :job AND ts >= :first AND ts < :end
    GROUP BY instance, day
    ORDER BY instance, day
"""


def daily_report(spark: SparkSession, history: dict[str, str], job: str, first: str, end: str) -> DataFrame:
    """The report of the days [first, end), given like 2026-01-01. history: options of the history."""
    spark_backfill.register(spark)
    samples = spark.read.format("tsdb").options(**history, wide="__name__,job,instance").load()
    samples.createOrReplaceTempView("samples")
    days = {name: datetime.fromisoformat(day).replace(tzinfo=UTC) for name, day in (("first", first), ("end", end))}
    return spark.sql(REPORT, args={"job": job, **days})


def main(history: str, job: str, first: str, end: str) -> None:
    # The days of date_trunc are those of the session's time zone.
    spark = SparkSession.builder.appName("daily_report").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        report = daily_report(spark, {"history": history}, job, first, end)
        report.explain("formatted")
        report.show(truncate=False)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
