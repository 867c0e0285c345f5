"""Spark backlog: samples a second of the streaming chunk stage over closed windows, with warm workers, and the CPU
seconds of each kind of process.

The session first runs a stream over another, small log. The measured stream then starts anew, so its time includes
group, planner and first offset; `in_stream` counts from the first batch with work to the end of the last one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bench.ground import kafka_log, make_topics
from bench.measure import say
from bench.spark.spark_ground import PARTITIONS, build_options, fill_windows, local_session
from bench.spark.spark_roles import RoleCpu, role_cpu, worker_rss_mib
from bench.workload import SAMPLES, Workload
from spark_backfill.pipeline.group_membership import GroupMembership
from spark_backfill.pipeline.pipeline import Pipeline, PipelineOptions, RunTotals
from spark_backfill.pipeline.planner import BatchLimits
from tsdb.log.open import open_log
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

SERIES = 20_000
WINDOWS = 4
CORES = 2
WARM_SERIES = 2_000
WARM_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class StreamRun:
    """One run of a stream: wall seconds from the driver's start to its end, the part before the query is started, CPU
    seconds, and Spark's progress of each batch with work."""

    wall_s: float
    take_over_s: float
    cpu: RoleCpu
    totals: RunTotals
    batches: list[StreamingQueryProgress]

    @property
    def in_stream_s(self) -> float:
        """Seconds from the start of the first batch with work to the end of the last one."""
        return _ended_s(self.batches[-1]) - _began_s(self.batches[0])

    @property
    def start_s(self) -> float:
        """Seconds from the start of the query to the first batch with work, and from the last one to the end."""
        return self.wall_s - self.take_over_s - self.in_stream_s

    @property
    def between_batches_s(self) -> float:
        """The part of in_stream_s in which no task could run."""
        return self.in_stream_s - sum(each.durationMs["addBatch"] for each in self.batches) / 1000


def main(argv: Sequence[str]) -> dict[str, object]:
    """Rates, CPU seconds by role, memory, and the batches."""
    parser = argparse.ArgumentParser(prog="bench spark_backlog", description=__doc__)
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--windows", type=int, default=WINDOWS)
    parser.add_argument("--cores", type=int, default=CORES, help="tasks at once")
    parser.add_argument("--windows-a-batch", type=int, default=BatchLimits().windows_max, help="of each partition")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="fewer series, two windows")
    arguments = parser.parse_args(argv)
    series, windows = (2_000, 2) if arguments.quick else (arguments.series, arguments.windows)
    limits = BatchLimits(windows_max=arguments.windows_a_batch)
    samples = series * windows * SAMPLES
    with local_session(arguments.cores) as spark, kafka_log(PARTITIONS) as url:
        warm = Workload(WARM_SERIES, PARTITIONS, samples=2 * SAMPLES)
        for number in range(WARM_ROUNDS):
            run_stream(spark, url, f"warm{number}.", warm, 2, BatchLimits())
        workload = Workload(series, PARTITIONS, samples=windows * SAMPLES)
        runs = [
            run_stream(spark, url, f"run{number}.", workload, windows, limits) for number in range(arguments.rounds)
        ]
        memory = worker_rss_mib(spark)
    best = min(runs, key=lambda run: run.in_stream_s)
    return {
        "cores": arguments.cores,
        "samples": samples,
        "seconds": round(best.wall_s, 2),
        "samples_per_s": round(samples / best.wall_s),
        "take_over_s": round(best.take_over_s, 2),
        "start_s": round(best.start_s, 2),
        "in_stream_s": round(best.in_stream_s, 2),
        "in_stream_samples_per_s": round(samples / best.in_stream_s),
        "between_batches_s": round(best.between_batches_s, 2),
        "cpu_s": best.cpu.over(1.0),
        "cpu_ns_per_sample": round(best.cpu.total / samples * 1e9),
        "batches": best.totals.batches,
        "items": best.totals.items,
        "rss_mib": memory,
    }


def run_stream(
    spark: SparkSession, url: str, prefix: str, workload: Workload, windows: int, limits: BatchLimits
) -> StreamRun:
    """Write the workload into a new log, and run a stream over all of it."""
    make_topics(url, PARTITIONS, CREATE_TIME, prefix=prefix)
    fill_windows(url, workload, windows, prefix)
    with tempfile.TemporaryDirectory() as folder, open_log(url, prefix=prefix) as log:
        options = PipelineOptions(build_options(url, prefix), Path(folder, "checkpoint").as_uri(), None, limits)
        found: list[StreamingQuery] = []
        started: list[float] = []

        def on_turn() -> None:
            if not found:
                started.append(time.perf_counter())
                found.extend(spark.streams.active)

        clock = SystemClock()
        before, began = role_cpu(spark), time.perf_counter()
        totals = Pipeline(spark, log, options, clock, on_turn).run(GroupMembership(log, clock))
        wall_s, cpu = time.perf_counter() - began, role_cpu(spark).since(before)
        batches = [each for each in found[0].recentProgress if each.numInputRows]
    run = StreamRun(wall_s, started[0] - began, cpu, totals, batches)
    parts = (
        f"take-over {run.take_over_s:.1f} s, start and end {run.start_s:.1f} s, in the stream {run.in_stream_s:.1f} s"
    )
    say(f"{wall_s:.1f} s: {parts}; {totals.batches} batches of {totals.items} items; {cpu.over(1.0)}")
    for each in batches:
        say(f"batch {each.batchId}: {each.numInputRows} items, {dict(each.durationMs)}")
    return run


def _began_s(progress: StreamingQueryProgress) -> float:
    return datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()


def _ended_s(progress: StreamingQueryProgress) -> float:
    return _began_s(progress) + progress.durationMs["triggerExecution"] / 1000
