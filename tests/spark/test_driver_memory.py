"""The driver holds no samples: many times the data sends it no more, and its Python holds no more."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_backfill.jobs.downsample.job import DownsampleOptions, downsample
from spark_backfill.jobs.exports.job import ExportOptions, export
from spark_backfill.jobs.imports.job import ImportOptions, import_files
from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from support.spark.driver_memory import DriverUsage
from support.spark.imports import ImportGround
from tsdb.model.import_layout import ImportLayout

PAST_MS = 1_577_836_800_000
SERIES, STEPS = 24, 80
SAMPLE_BYTES = 16  # Timestamp and value, which a driver with the samples would hold.
WAIT_S = 120.0


def rows(file: Path, times: int) -> str:
    """The same span and series, `times` times as dense, with values that no codec can compress."""
    steps = STEPS * times
    labels = [json.dumps({"__name__": f"m{n % 3}", "job": "j", "instance": f"i{n // 3}"}) for n in range(SERIES)]
    ts_ms = np.tile(PAST_MS + np.arange(steps) * (28_000_000 // steps), SERIES)
    values = np.random.default_rng(times).normal(size=SERIES * steps)
    pq.write_table(pa.table({"labels": np.repeat(labels, steps), "ts_ms": ts_ms, "value": values}), file)
    return str(file)


@pytest.mark.parametrize("more", [30, pytest.param(100, marks=pytest.mark.soak)])
def test_many_times_the_samples_are_no_more_for_the_driver(
    spark: SparkSession, embedded: ImportGround, tmp_path: Path, more: int
) -> None:
    usage = DriverUsage(spark, python_room_bytes=more * SERIES * STEPS * SAMPLE_BYTES // 2)
    for number, times in enumerate((1, more, more, more)):
        if number > 1 and not usage.exceeded():
            break
        path = rows(tmp_path / f"{number}.parquet", times)
        ground, samples = embedded, SERIES * STEPS * times
        once = ImportOptions(f"times-{number}", wait_s=WAIT_S)
        layout, folder = ImportLayout("parquet"), str(tmp_path / f"out-{number}")
        imported = usage.of("import", lambda: import_files(spark, [path], layout, ground.places, ground.shared, once))  # noqa: B023  # called at once
        assert imported.samples == samples
        options = ExportOptions(folder, partial=True, splits=8)
        exported = usage.of("export", lambda: export(spark, ground.places, options))  # noqa: B023  # called at once
        assert exported.samples >= samples
        fold = MergeLateOptions(apply=True, fragments_max=1, delete_after_ms=0, tasks=8)
        assert usage.of("merge-late", lambda: merge_late(spark, ground.places, ground.shared, fold)).ok  # noqa: B023  # called at once
        look = DownsampleOptions(dry_run=True, tasks=8)
        assert usage.of("downsample", lambda: downsample(spark, ground.places, ground.shared, look)).ok  # noqa: B023  # called at once
    usage.assert_independent_of_data()
