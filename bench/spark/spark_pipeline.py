"""Spark pipeline: the streaming chunk stage while samples flow: the time from the moment a window can close to its
commit, once workers are warm. Its rate over a backlog is in bench/spark/spark_backlog.py.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.ground import kafka_log
from bench.measure import percentiles_ms
from bench.spark.spark_ground import PARTITIONS, local_session
from bench.workload import INTERVAL_MS, Workload
from spark_backfill.building.options import BuildOptions
from spark_backfill.pipeline.group_membership import GroupMembership
from spark_backfill.pipeline.pipeline import Pipeline, PipelineOptions
from spark_backfill.pipeline.planner import BatchLimits
from spark_backfill.places import Places
from tsdb.log.interface import METRICS, SERIES, Log
from tsdb.log.open import open_log
from tsdb.log.topics import LOG_APPEND_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import DEMO, slice_lengths

LIVE_SERIES = 2_000
LIVE_S = 120.0
CORES = 2


def main(argv: Sequence[str]) -> dict[str, object]:
    """Delays of windows in a live run."""
    parser = argparse.ArgumentParser(prog="bench spark_pipeline", description=__doc__)
    parser.add_argument("--cores", type=int, default=CORES)
    parser.add_argument("--quick", action="store_true", help="a shorter run")
    arguments = parser.parse_args(argv)
    live = _live(60.0 if arguments.quick else LIVE_S, arguments.cores)
    return {"cores": arguments.cores, "live": live}


def _live(seconds: float, cores: int) -> dict[str, object]:
    """Delays with windows of the demo time set: from the moment a window can close, its end + grace, to its commit.

    Windows of the first commit with work count apart: they wait for the start of the query and of the workers.
    """
    workload = Workload(LIVE_SERIES, PARTITIONS)
    delays: list[float] = []
    first: list[float] = []
    emitted: dict[int, int] = {}
    warm: set[int] = set()  # Partitions with a committed window.
    with (
        kafka_log(PARTITIONS, broker_times=LOG_APPEND_TIME) as url,
        tempfile.TemporaryDirectory() as folder,
        local_session(cores) as spark,
        open_log(url) as log,
    ):
        build = BuildOptions(Places(url), log.topic_id(METRICS), DEMO, slice_lengths(DEMO.name))
        options = PipelineOptions(build, Path(folder, "checkpoint").as_uri(), 1.0, BatchLimits())
        ends_at = time.monotonic() + seconds

        def on_turn() -> None:
            now_ms = time.time() * 1000
            for number, progress in running.committed.items():
                if emitted.setdefault(number, progress.emitted_through_ms) < progress.emitted_through_ms:
                    emitted[number] = progress.emitted_through_ms
                    delay_s = (now_ms - progress.emitted_through_ms - DEMO.grace_ms) / 1000
                    (delays if number in warm else first).append(delay_s)
                    warm.add(number)
            if time.monotonic() > ends_at:
                running.stop()

        running = Pipeline(spark, log, options, SystemClock(), on_turn)
        with LiveFlow(log, workload):
            running.run(GroupMembership(log, SystemClock()))
    return {
        "windows": len(delays),
        "close_to_commit_ms": percentiles_ms(delays),
        "first_close_to_commit_ms": percentiles_ms(first),
    }


class LiveFlow:
    """A context manager that writes one scrape a second while it is open."""

    def __init__(self, log: Log, workload: Workload) -> None:
        self._log = log
        self._workload = workload
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        column = 0
        while not self._ended.wait(1.0):
            now_ms = int(time.time() * 1000)
            for share in self._workload.shares:
                if column % (DEMO.window_ms // 2000) == 0:
                    for key, value in self._workload.announcements(share, now_ms):
                        self._log.append(SERIES, share.partition, value, key=key, on_done=lambda _: None)
                    self._log.flush(30.0)
                for record in self._workload.record(share, now_ms, column % (INTERVAL_MS // 1000)):
                    self._log.append(METRICS, share.partition, record, on_done=lambda _: None)
            column += 1
