"""Roles: reads the CPU seconds of the processes of a Spark session, by their part in the work."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import psutil

from spark_backfill import worker_daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANNER_MODULE = "python_streaming_source_runner"


@dataclass(frozen=True, slots=True)
class RoleCpu:
    """CPU seconds by role. driver: this Python process. planner: the process of Spark that plans a stream. workers:
    processes of tasks and their daemon. ended: children of the JVM that have ended."""

    driver: float
    jvm: float
    planner: float
    workers: float
    ended: float

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return float(sum(asdict(self).values()))

    def since(self, before: RoleCpu) -> RoleCpu:
        """CPU seconds used after `before`."""
        return RoleCpu(*(getattr(self, field.name) - getattr(before, field.name) for field in fields(self)))

    def over(self, divisor: float) -> dict[str, float]:
        """Each part and the total, divided."""
        parts = {**asdict(self), "total": self.total}
        return {name: round(seconds / divisor, 3) for name, seconds in parts.items()}


def role_cpu(spark: SparkSession) -> RoleCpu:
    """CPU seconds used so far. The driver's share is that of the calling process, with all of its threads."""
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]  # PySpark started it
    planner = workers = 0.0
    for child in jvm.children(recursive=True):
        try:
            took = child.cpu_times()
            seconds = took.user + took.system
            if any(PLANNER_MODULE in word for word in child.cmdline()):
                planner += seconds
            else:
                # Workers are forked from the daemon, which collects the ended ones.
                workers += seconds + took.children_user + took.children_system
        except psutil.Error:
            continue  # The process ended meanwhile.
    here, took = psutil.Process().cpu_times(), jvm.cpu_times()
    return RoleCpu(
        here.user + here.system,
        took.user + took.system,
        planner,
        workers,
        took.children_user + took.children_system,
    )


def worker_rss_mib(spark: SparkSession) -> dict[str, float]:
    """Resident memory in MiB of the driver, of the JVM, and of the largest worker."""
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]  # PySpark started it
    largest = 0
    for child in jvm.children(recursive=True):
        try:
            if worker_daemon.__name__ in child.cmdline():
                largest = max(largest, child.memory_info().rss)
        except psutil.Error:
            continue  # The process ended meanwhile.
    sizes = {"driver": psutil.Process().memory_info().rss, "jvm": jvm.memory_info().rss, "largest_worker": largest}
    return {name: round(size / (1 << 20), 1) for name, size in sizes.items()}
