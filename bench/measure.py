"""Measuring: computes medians and percentiles, reads CPU time and memory of processes, and describes the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

LIBRARIES = ("numpy", "grpcio", "confluent-kafka", "protobuf")


@dataclass(slots=True)
class Spent:
    """Wall and CPU seconds of a block of work."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


@contextmanager
def spent() -> Iterator[Spent]:
    """Measure wall and CPU seconds of this process, all threads, in the block."""
    result = Spent()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield result
    finally:
        result.wall_s, result.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


def median_spent(call: Callable[[], object], rounds: int) -> Spent:
    """Medians over `rounds` calls, after one warm-up call."""
    call()
    results = []
    for _ in range(rounds):
        with spent() as one:
            call()
        results.append(one)
    return Spent(statistics.median(one.wall_s for one in results), statistics.median(one.cpu_s for one in results))


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and max in ms, and the count. A percentile is a measured value, without interpolation."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3, 2)

    return {"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": at(1.0), "count": len(ordered)}


def cpu_of(pid: int) -> float:
    """CPU seconds that a process has used so far, user and system."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def rss_mib(pid: int) -> float:
    """Resident memory of a process, MiB."""
    return round(psutil.Process(pid).memory_info().rss / (1 << 20), 1)


def uss_mib(pid: int) -> float:
    """Unshared memory (USS) of a process, MiB: without the pages of library files."""
    return round(psutil.Process(pid).memory_full_info().uss / (1 << 20), 1)


def machine() -> dict[str, object]:
    """Hardware and library versions, to be printed with every figure."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30)),
        "cpu": _cpu_name(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def say(text: str) -> None:
    """Print progress to stderr."""
    print(f"   {text}", file=sys.stderr, flush=True)
