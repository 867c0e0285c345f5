"""Spark over the store: has a data source, a writer of chunks, the pipeline, and jobs over data too large for one
process.

Spark only splits the work. The codec, the merge and `tsdb.chunks` make the bytes, as in every other process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_backfill.functions import (
    downsample,
    evaluate_rules,
    export,
    import_files,
    merge_late,
    migrate,
    rebuild,
    verify,
)
from spark_backfill.installation import Installation, connect
from spark_backfill.result import (
    DownsampleResult,
    ExportResult,
    ImportResult,
    JobResult,
    MergeLatePlan,
    MergeLateResult,
    MigrateResult,
    RebuildResult,
    RulesResult,
    VerifyResult,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DownsampleResult",
    "ExportResult",
    "ImportResult",
    "Installation",
    "JobResult",
    "MergeLatePlan",
    "MergeLateResult",
    "MigrateResult",
    "RebuildResult",
    "RulesResult",
    "VerifyResult",
    "connect",
    "downsample",
    "evaluate_rules",
    "export",
    "import_files",
    "merge_late",
    "migrate",
    "rebuild",
    "register",
    "verify",
]


def register(spark: SparkSession) -> None:
    """Register `spark.read.format("tsdb")` and `df.write.format("tsdb")` in a session. It may be the user's session."""
    from spark_backfill.data_source import TsdbDataSource
    from spark_backfill.session import REQUIRED

    for key, value in REQUIRED.items():
        spark.conf.set(key, value)
    spark.dataSource.register(TsdbDataSource)
