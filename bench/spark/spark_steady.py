"""Spark steady: CPU of the streaming chunk stage, by kind of process, while 150 k samples/s flow through a real broker
with 18 partitions. As in bench/chunks/chunk_steady.py no window closes meanwhile: only late minutes are scanned.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.flow_process import SERIES, Flow
from bench.ground import PARTITIONS, kafka_log
from bench.measure import say
from bench.spark.spark_ground import build_options, local_session
from bench.spark.spark_roles import role_cpu, worker_rss_mib
from spark_backfill.pipeline.group_membership import GroupMembership
from spark_backfill.pipeline.pipeline import Pipeline, PipelineOptions
from tsdb.log.open import open_log
from tsdb.log.topics import LOG_APPEND_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import PRODUCTION

MINUTE_S = PRODUCTION.late_minute_ms / 1000
CORES = 2
TRIGGER_S = 1.0
FIRST_BATCH_WITHIN_S = 60.0


def main(argv: Sequence[str]) -> dict[str, object]:
    """Cores used by each kind of process, over whole late minutes."""
    parser = argparse.ArgumentParser(prog="bench spark_steady", description=__doc__)
    parser.add_argument("--minutes", type=int, default=2)
    parser.add_argument("--series", type=int, default=SERIES, help="each writes a sample a second")
    parser.add_argument("--trigger", type=float, default=TRIGGER_S, help="seconds between batches")
    parser.add_argument("--cores", type=int, default=CORES, help="tasks at once")
    parser.add_argument("--quick", action="store_true", help="one minute")
    arguments = parser.parse_args(argv)
    minutes = 1 if arguments.quick else arguments.minutes
    with (
        kafka_log(PARTITIONS, broker_times=LOG_APPEND_TIME) as url,
        tempfile.TemporaryDirectory() as folder,
        local_session(arguments.cores) as spark,
        open_log(url) as log,
        Flow(url, series=arguments.series) as flow,
    ):
        clock, measured = SystemClock(), threading.Event()
        options = PipelineOptions(build_options(url), Path(folder, "checkpoint").as_uri(), arguments.trigger)
        running = Pipeline(spark, log, options, clock, lambda: running.stop() if measured.is_set() else None)
        stream = threading.Thread(target=lambda: running.run(GroupMembership(log, clock)), name="stream")
        stream.start()
        try:
            _wait_minute_end(running)
            before, items, began = role_cpu(spark), running.totals.items, time.monotonic()
            memory_before = worker_rss_mib(spark)
            time.sleep(minutes * MINUTE_S)
            cpu, took = role_cpu(spark).since(before), time.monotonic() - began
            items, memory = running.totals.items - items, worker_rss_mib(spark)
        finally:
            measured.set()
            stream.join()
    cores = cpu.over(took)
    say(f"{cores['total']:.2f} cores")
    return {
        "written": flow.wrote,
        "minutes": minutes,
        "items": items,
        "cores": cores,
        "rss_mib_before": memory_before,
        "rss_mib": memory,
    }


def _wait_minute_end(running: Pipeline) -> None:
    """Wait for the first batch with work, the workers' start, then to the middle of a late minute: each minute's work
    comes after its end, and whole minutes are measured."""
    give_up_at = time.monotonic() + FIRST_BATCH_WITHIN_S + MINUTE_S
    while not running.totals.batches:
        assert time.monotonic() < give_up_at, "no batch with work"
        time.sleep(0.2)
    time.sleep((1.5 * MINUTE_S - time.time() % MINUTE_S) % MINUTE_S)
