"""Ground of the Spark benches: writes closed windows of W(S) to a broker, starts a local session, and reads its CPU
time."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.ground import fill, kafka_log
from bench.workload import SAMPLES, Workload
from spark_backfill.building.options import BuildOptions
from spark_backfill.places import Places
from spark_backfill.session import SessionOptions, session
from tsdb.chunks.late_scan import Windows
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS
from tsdb.log.open import open_log
from tsdb.model.time_set import PRODUCTION, slice_lengths
from tsdb.model.window import floor_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 8
WARM_UP = 2  # Number of rounds. The JVM compiles its code while it runs, so the first rounds take twice the CPU.
RECORD_SAMPLES = 100  # One record for each instance, as gateways write.
CLOSES_MS = PRODUCTION.grace_ms + PRODUCTION.late_minute_ms  # After its end a window is closed for every engine.
ROOT = Path(__file__).parents[2]


@contextmanager
def closed_windows(workload: Workload, windows: int) -> Iterator[tuple[str, Windows]]:
    """(URL, span) of a log on a new broker, with `windows` windows that have ended just now."""
    with kafka_log(PARTITIONS) as url:
        yield url, fill_windows(url, workload, windows)


def fill_windows(url: str, workload: Workload, windows: int, prefix: str = "") -> Windows:
    """Write windows that have ended just now, and a tick that closes the last one. Returns their span.

    A broker trims records older than the log's retention, by their timestamps.
    """
    end_ms = floor_to(int(time.time() * 1000) - CLOSES_MS, PRODUCTION.window_ms)
    span = Windows(end_ms - windows * PRODUCTION.window_ms, end_ms)
    fill(url, workload, span.start_ms, samples=windows * SAMPLES, record_samples=RECORD_SAMPLES, prefix=prefix)
    with open_log(url, prefix=prefix) as log:
        for partition in range(PARTITIONS):
            log.append_sync(METRICS, partition, encode_tick(), timestamp_ms=end_ms + CLOSES_MS)
    return span


def build_options(url: str, prefix: str = "") -> BuildOptions:
    """Build options for the log at `url`."""
    with open_log(url, prefix=prefix) as log:
        return BuildOptions(Places(url, prefix), log.topic_id(METRICS), PRODUCTION, slice_lengths(PRODUCTION.name))


@contextmanager
def local_session(cores: int) -> Iterator[SparkSession]:
    """A session on local[cores], with its files in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as folder:
        conf = {
            "spark.local.dir": folder,
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": str(4 * cores),
            "spark.executorEnv.PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
            "spark.log.level": "ERROR",
        }
        with session(SessionOptions(f"local[{cores}]", "bench", ui=False, conf=conf)) as spark:
            yield spark


@dataclass(frozen=True, slots=True)
class SparkSpent:
    """Wall seconds; CPU seconds of the session's JVM and of its Python workers."""

    wall_s: float
    jvm_s: float
    python_s: float

    @property
    def cpu_s(self) -> float:
        """CPU seconds of JVM and workers."""
        return self.jvm_s + self.python_s


def median_spark_spent(spark: SparkSession, call: Callable[[], object], rounds: int) -> SparkSpent:
    """Medians over `rounds` calls, after WARM_UP calls that are not measured."""
    for _ in range(WARM_UP):
        call()
    return medians([spark_spent(spark, call) for _ in range(rounds)])


def spark_spent(spark: SparkSession, call: Callable[[], object]) -> SparkSpent:
    """Wall and CPU seconds of one call."""
    wall_s, (jvm_s, python_s) = time.perf_counter(), _cpu_s(spark)
    call()
    jvm_end_s, python_end_s = _cpu_s(spark)
    return SparkSpent(time.perf_counter() - wall_s, jvm_end_s - jvm_s, python_end_s - python_s)


def medians(taken: Sequence[SparkSpent]) -> SparkSpent:
    """Median of each figure, independent of the others."""
    return SparkSpent(*(statistics.median(getattr(one, field.name) for one in taken) for field in fields(SparkSpent)))


def _cpu_s(spark: SparkSession) -> tuple[float, float]:
    """CPU seconds used so far: (the session's JVM, its Python workers)."""
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]  # PySpark started it
    took = jvm.cpu_times()
    return took.user + took.system, sum(map(_all_cpu_s, jvm.children(recursive=True)))


def _all_cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process and its ended children; 0 when the process itself has ended."""
    try:
        took = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(took.user + took.system + took.children_user + took.children_system)
