"""Spark over the store: a data source, a writer of chunks, the pipeline, and jobs over data too large for one process.

Spark only splits the work. The codec, the merge and `tsdb.chunks` make the bytes, as in every other process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register `spark.read.format("tsdb")` and `df.write.format("tsdb")` in a session. It may be the user's session."""
    from spark_backfill.data_source import TsdbDataSource
    from spark_backfill.session import REQUIRED

    for key, value in REQUIRED.items():
        spark.conf.set(key, value)
    spark.dataSource.register(TsdbDataSource)
