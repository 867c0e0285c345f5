"""Cold start: from the start of a store process until all partitions are ready, with W(100,000) in the log (24 M
samples), on a real broker and on the embedded log.

The control is the same start over an empty log. Kernels are compiled beforehand.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from contextlib import AbstractContextManager

from bench.ground import PARTITIONS, ago_ms, embedded_log, fill, kafka_log
from bench.measure import say
from bench.store_process import StoreProcess
from bench.workload import SAMPLES, Workload

RECORD_SAMPLES = 1_000  # As when a gateway cuts a request of some thousand series by partition.


def main(argv: Sequence[str]) -> dict[str, object]:
    """Seconds to ready and CPU seconds, medians, for each log."""
    parser = argparse.ArgumentParser(prog="bench cold_start", description=__doc__)
    parser.add_argument("--series", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the series, one round")
    arguments = parser.parse_args(argv)
    series, rounds = (arguments.series // 10, 1) if arguments.quick else (arguments.series, arguments.rounds)
    workload = Workload(series, PARTITIONS)
    return {
        "samples": series * SAMPLES,
        "kafka": _measure(kafka_log(PARTITIONS), workload, rounds),
        "sqlite": _measure(embedded_log(PARTITIONS), workload, rounds),
    }


def _measure(ground: AbstractContextManager[str], workload: Workload, rounds: int) -> dict[str, float]:
    with ground as url:
        _start(url, 0)  # Compiles missing kernels.
        empty_s, empty_cpu_s = _start(url, 0)
        records = fill(url, workload, ago_ms(), record_samples=RECORD_SAMPLES)
        runs = [_start(url, len(workload.labels) * SAMPLES) for _ in range(rounds)]
    say(f"{url.split(':')[0]}: {runs}")
    ready_s, cpu_s = (statistics.median(values) for values in zip(*runs, strict=True))
    return {
        "records": records,
        "ready_s": ready_s,
        "cpu_s": round(cpu_s, 2),
        "empty_ready_s": empty_s,
        "empty_cpu_s": round(empty_cpu_s, 2),
        "samples_per_cpu_s": round(len(workload.labels) * SAMPLES / max(cpu_s - empty_cpu_s, 0.01)),
    }


def _start(url: str, samples: int) -> tuple[float, float]:
    with StoreProcess(url) as store:
        ready = store.wait_ready()
        assert ready["samples"] == samples, f"ready with {ready['samples']} of {samples} samples"
    return float(ready["ready_s"]), float(ready["cpu_s"])
