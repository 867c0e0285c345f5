"""Spark rebuild: samples a second of `rebuild` on all cores, from a real broker into `chunks`.

The controls, in the same run on the same data, are the same work items in one process, times the number of cores, and a
Spark job that rewrites the samples as Parquet, sorted by pack, series and time.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import say, spent
from bench.spark.spark_ground import (
    WARM_UP,
    SparkSpent,
    build_options,
    closed_windows,
    local_session,
    medians,
    spark_spent,
)
from bench.workload import INTERVAL_MS, SAMPLES, Workload
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import items_of, plan_partitions
from spark_backfill.building.task import run_item
from spark_backfill.jobs.rebuild.job import rebuild
from tsdb.chunks.late_scan import Windows
from tsdb.log.open import open_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERIES = 20_000
WINDOWS = 2
CORES = 2
TASKS = 4
ROUNDS = 3
FILES = 16


def main(argv: Sequence[str]) -> dict[str, object]:
    """Samples a second of rebuild and controls, and the two ratios."""
    parser = argparse.ArgumentParser(prog="bench spark_rebuild", description=__doc__)
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--windows", type=int, default=WINDOWS)
    parser.add_argument("--cores", type=int, default=CORES)
    parser.add_argument("--tasks", type=int, default=TASKS, help="at once; more than cores: a task waits for the log")
    parser.add_argument("--quick", action="store_true", help="fewer series, one round")
    arguments = parser.parse_args(argv)
    series, rounds = (2_000, 1) if arguments.quick else (arguments.series, ROUNDS)
    workload = Workload(series, 8, samples=arguments.windows * SAMPLES)
    samples = series * arguments.windows * SAMPLES
    with closed_windows(workload, arguments.windows) as (url, windows), tempfile.TemporaryDirectory() as folder:
        options = build_options(url)
        table = _write_table(workload, windows, Path(folder) / "rows")
        with local_session(arguments.tasks) as spark:
            calls: dict[str, Callable[[], object]] = {
                "one_process": lambda: _alone(url, options, windows),
                "rebuild": lambda: rebuild(spark, options, windows),
                "parquet": lambda: _rewrite(spark, table, Path(folder) / "sorted"),
            }
            took = _alternating(spark, calls, rounds)
    rates = {name: samples / each.wall_s for name, each in took.items()}
    return {
        "samples": samples,
        "cores": arguments.cores,
        "tasks_at_once": arguments.tasks,
        **{f"{name}_samples_per_s": round(rate) for name, rate in rates.items()},
        **{f"{name}_cpu_ns_per_sample": round(each.cpu_s / samples * 1e9) for name, each in took.items()},
        "rebuild_jvm_cpu_ns_per_sample": round(took["rebuild"].jvm_s / samples * 1e9),
        "over_one_process_x_cores": round(rates["rebuild"] / (arguments.cores * rates["one_process"]), 3),
        "over_parquet_rewrite": round(rates["rebuild"] / rates["parquet"], 3),
    }


def _alternating(spark: SparkSession, calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, SparkSpent]:
    """Medians of each call. Each round runs all calls, so that other load on the machine affects all of them."""
    taken: dict[str, list[SparkSpent]] = {name: [] for name in calls}
    for number in range(WARM_UP + rounds):
        for name, call in calls.items():
            with spent() as here:
                one = spark_spent(spark, call)
            if name == "one_process":
                one = SparkSpent(here.wall_s, 0.0, here.cpu_s)
            say(f"{name}: {one.wall_s:.2f} s, {one.cpu_s:.2f} s CPU{'' if number >= WARM_UP else ', not counted'}")
            taken[name].append(one)
    return {name: medians(each[WARM_UP:]) for name, each in taken.items()}


def _alone(url: str, options: BuildOptions, windows: Windows) -> None:
    with open_log(url) as log:
        items = list(items_of(log, plan_partitions(log, windows, options.times), windows, options.times))
    for item in items:
        run_item(item, options)


def _write_table(workload: Workload, windows: Windows, folder: Path) -> str:
    """Write the same samples as Parquet rows in the order of time, as in a data lake."""
    folder.mkdir()
    for part, columns in enumerate(np.array_split(np.arange(workload.values.shape[1]), FILES)):
        count = len(columns)
        table = pa.table(
            {
                "series_id": np.tile(workload.series_ids.view(np.int64), count),
                "pack_id": np.tile(workload.pack_ids.view(np.int64), count),
                "ts_ms": np.repeat(windows.start_ms + columns * INTERVAL_MS, len(workload.series_ids)),
                "value": workload.values[:, columns].T.ravel(),
            }
        )
        pq.write_table(table, folder / f"{part}.parquet")
    return folder.as_uri()


def _rewrite(spark: SparkSession, table: str, out: Path) -> None:
    rows = spark.read.parquet(table).repartition(FILES, "pack_id").sortWithinPartitions("pack_id", "series_id", "ts_ms")
    rows.write.mode("overwrite").parquet(out.as_uri())
