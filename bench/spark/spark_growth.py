"""Spark growth: measures the cost of a sample in the streaming chunk stage by the number of series and of windows in a
batch.

Each size is one run of `spark_backlog` over a separate log, in one session with warm workers. The cost should not grow.
The smallest sizes show the fixed cost of a query: group, planner, start and end.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from bench.ground import kafka_log
from bench.measure import say
from bench.spark.spark_backlog import CORES, WARM_ROUNDS, WARM_SERIES, run_stream
from bench.spark.spark_ground import PARTITIONS, local_session
from bench.spark.spark_roles import worker_rss_mib
from bench.workload import SAMPLES, Workload
from spark_backfill.pipeline.planner import BatchLimits

WINDOWS_MAX = 32


@dataclass(frozen=True, slots=True)
class Size:
    """A run: series, and closed windows in its one batch."""

    series: int
    windows: int

    @property
    def samples(self) -> int:
        """All samples of the run."""
        return self.series * self.windows * SAMPLES


BY_SERIES = (Size(2_000, 2), Size(20_000, 2), Size(200_000, 2))
BY_WINDOWS = (Size(8_000, 2), Size(8_000, 8), Size(8_000, WINDOWS_MAX))
QUICK = (Size(2_000, 2), Size(4_000, 4))


def main(argv: Sequence[str]) -> dict[str, object]:
    """A table with one row for each size: CPU of a sample, by role, and memory."""
    parser = argparse.ArgumentParser(prog="bench spark_growth", description=__doc__)
    parser.add_argument("--cores", type=int, default=CORES, help="tasks at once")
    parser.add_argument("--quick", action="store_true", help="two small sizes")
    arguments = parser.parse_args(argv)
    # Everything is one batch, whatever the size.
    limits = BatchLimits(records_max=100_000_000, windows_max=WINDOWS_MAX)
    rows: list[dict[str, object]] = []
    with local_session(arguments.cores) as spark, kafka_log(PARTITIONS) as url:
        warm = Workload(WARM_SERIES, PARTITIONS, samples=2 * SAMPLES)
        for number in range(WARM_ROUNDS):
            run_stream(spark, url, f"warm{number}.", warm, 2, limits)
        for size in QUICK if arguments.quick else (*BY_SERIES, *BY_WINDOWS):
            workload = Workload(size.series, PARTITIONS, samples=size.windows * SAMPLES)
            run = run_stream(spark, url, f"s{size.series}w{size.windows}.", workload, size.windows, limits)
            ns = {f"{role}_ns": round(cost) for role, cost in run.cpu.over(size.samples / 1e9).items()}
            rows.append(
                {
                    "series": size.series,
                    "windows": size.windows,
                    "samples": size.samples,
                    "batches": run.totals.batches,
                    "in_stream_samples_per_s": round(size.samples / run.in_stream_s),
                    **ns,
                    "rss_mib": worker_rss_mib(spark),
                }
            )
            say(str(rows[-1]))
    return {"cores": arguments.cores, "rows": rows}
