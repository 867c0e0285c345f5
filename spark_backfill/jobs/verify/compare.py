"""Compare: the records that a rebuild would write against the records in `chunks`. Nothing is written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spark_backfill.building.options import BuildOptions
from spark_backfill.jobs.verify.job import VerifyOptions, verify
from spark_backfill.result import VerifyResult
from tsdb.chunks.late_scan import Windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "rebuild --compare"


def compare(
    spark: SparkSession, build: BuildOptions, windows: Windows, packs: frozenset[int] | None = None
) -> VerifyResult:
    """Find the differences for `verify`, without history. packs: compare only these; None: all. Raises the errors of
    `verify`."""
    return replace(verify(spark, build, VerifyOptions(windows, packs, history=False)), job=NAME)
