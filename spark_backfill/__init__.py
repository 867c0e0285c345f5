"""Spark over the store: a data source, a writer of chunks, and jobs over more data than one process should touch.

Spark splits the work; the bytes are made by the codec, the merge and `tsdb.chunks`, as everywhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("tsdb")` and `df.write.format("tsdb")` known to a session, whoever began it."""
    from spark_backfill.session import REQUIRED
    from spark_backfill.source.data_source import TsdbDataSource

    for key, value in REQUIRED.items():
        spark.conf.set(key, value)
    spark.dataSource.register(TsdbDataSource)
