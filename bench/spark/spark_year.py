"""Spark year: CPU of the scheduled jobs over a year, from the cost of their runs in the steady state.

History has the days that a run looks back on, downsampled and folded by first runs, as an application leaves it. Then
runs of merge-late and downsample are measured: when nothing is new, as in three hours of four, and after a window with
late fragments in each pack. A run over a history without packs gives the part that does not grow. A loader in this
process brings what the jobs write, and its CPU counts. The year has a run of each job an hour.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.ground import make_topics
from bench.measure import say
from bench.spark.spark_ground import ROOT
from bench.spark.spark_roles import role_cpu
from spark_backfill.application.recent import LAG_MS
from spark_backfill.jobs.downsample.job import DownsampleOptions, downsample
from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from spark_backfill.places import Places
from spark_backfill.session import SessionOptions, session
from tsdb.backup.restore import write_all
from tsdb.codec.chunk.chunk import Fragment, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.records.log_record import encode_tick
from tsdb.codec.records.series_record import Announcement
from tsdb.history.interface import ChunkStore, Loaded
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.history.open import open_history_admin
from tsdb.history.shared_settings import ensure_history
from tsdb.log.interface import METRICS, Log
from tsdb.log.open import open_log
from tsdb.log.settings import LogSettings
from tsdb.log.topics import LOG_APPEND_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.meta import MetaSettings
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import floor_to, index_epoch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKS = 400
SMALLER = 8  # The smaller size; the difference of both gives the cost of a series.
JOBS = ("merge_late", "downsample")
SERIES = 5  # Series of a pack.
SERIES_OF_GOAL = 100_000
INTERVAL_MS = 15_000
SAMPLES = PRODUCTION.window_ms // INTERVAL_MS
PARTITIONS = 2
META = MetaSettings(partitions=PARTITIONS)
HOUR_MS, DAY_MS = 3_600_000, 24 * 3_600_000
LATE = 9  # Late fragments in each new window: more than merge-late leaves.
CORES = 2
FIRST_ORDER = 0
TICKS = 20  # Records of the log before the first run, so that its ticks have higher orders than all chunks.
RUNS_A_DAY, WINDOWS_A_DAY = 24, 6
NEVER = 1 << 40


def main(argv: Sequence[str]) -> dict[str, object]:
    """CPU seconds of runs, and cores of a year with SERIES_OF_GOAL series."""
    parser = argparse.ArgumentParser(prog="bench spark_year", description=__doc__)
    parser.add_argument("--packs", type=int, default=PACKS, help=f"packs of {SERIES} series")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a fifth of the packs, one round")
    arguments = parser.parse_args(argv)
    packs = arguments.packs // 5 if arguments.quick else arguments.packs
    rounds = 1 if arguments.quick else arguments.rounds
    found = []
    with tempfile.TemporaryDirectory(prefix="bench-year-") as folder, _session(folder) as spark:
        for size in (packs // SMALLER, packs):
            with _ground(f"{folder}/{size}", size) as ground:
                found.append(_costs(spark, ground, rounds))
            say(f"{size * SERIES} series: {found[-1]}")
    small, large = found
    more = (packs - packs // SMALLER) * SERIES
    cores = {}
    for job in JOBS:
        seconds = 0.0
        for runs, kind in ((RUNS_A_DAY - WINDOWS_A_DAY, "nothing_new"), (WINDOWS_A_DAY, "new_window")):
            a_series = max(large[kind][job] - small[kind][job], 0.0) / more
            seconds += runs * (large[kind][job] + a_series * (SERIES_OF_GOAL - packs * SERIES))
        cores[job] = round(seconds / (DAY_MS / 1000), 4)
    sizes = dict(zip((packs // SMALLER * SERIES, packs * SERIES), found, strict=True))
    return {"cpu_s_of_a_run": sizes, "cores_of_a_year": cores}


def _costs(spark: SparkSession, ground: _Ground, rounds: int) -> dict[str, dict[str, float]]:
    """CPU seconds of a run of each job, when nothing is new and after a new window; medians."""
    began = time.monotonic()
    for _ in range(2):  # The second runs do the rest of the first ones.
        ground.jobs(spark)
    say(f"first runs: {time.monotonic() - began:.0f} s")
    costs: dict[str, dict[str, list[float]]] = {
        kind: {job: [] for job in JOBS} for kind in ("nothing_new", "new_window")
    }
    for kind, of_jobs in costs.items():
        for _ in range(rounds):
            if kind == "new_window":
                ground.add_window()
            for name, job in ground.works(spark).items():
                before = role_cpu(spark)
                job()
                of_jobs[name].append(role_cpu(spark).since(before).total)
    return {
        kind: {job: round(statistics.median(seconds), 2) for job, seconds in of_jobs.items()}
        for kind, of_jobs in costs.items()
    }


class _Ground:
    """A log, and a history with all windows that a run looks back on. Later windows are added one by one."""

    def __init__(self, places: Places, log: Log, history: ChunkStore, packs: int) -> None:
        self._places = places
        self._log = log
        self._history = history
        now_ms = SystemClock().now_ms()
        # Downsampling leaves the newest windows out.
        self._end_ms = floor_to(now_ms - PRODUCTION.least_hold_ms - 2 * DAY_MS, PRODUCTION.window_ms)
        self._start_ms = floor_to(now_ms - LAG_MS - 7 * DAY_MS, PRODUCTION.window_ms) - PRODUCTION.window_ms
        self._packs = [_labels(number) for number in range(packs)]
        topic_id = log.topic_id(METRICS)
        for number in range(PARTITIONS):
            for _ in range(TICKS):
                log.append_sync(METRICS, number, encode_tick())
        begins = [
            partial(history.write_loaded, Loaded(topic_id, number, NEVER, now_ms)) for number in range(PARTITIONS)
        ]
        for number, pack in enumerate(self._packs):
            for canonical in pack:
                for epoch in {index_epoch(series_id(canonical), ms) for ms in (self._start_ms, now_ms)}:
                    announced = Announcement(series_id(canonical), epoch, _pack_id(pack), canonical)
                    begins.append(partial(history.write_series, announced, number % PARTITIONS))
        write_all(begins, SystemClock())
        for start_ms in range(self._start_ms, self._end_ms, PRODUCTION.window_ms):
            self._write(start_ms, Kind.BASE, FIRST_ORDER)

    def works(self, spark: SparkSession) -> dict[str, Callable[[], object]]:
        """Each job as an application runs it after an ok run."""
        folding = MergeLateOptions(apply=True, delete_after_ms=0, start_ms=self._start_ms)
        deriving = DownsampleOptions(start_ms=self._start_ms + 2 * DAY_MS)
        return {
            "merge_late": lambda: merge_late(spark, self._places, META, folding),
            "downsample": lambda: downsample(spark, self._places, META, deriving),
        }

    def jobs(self, spark: SparkSession) -> None:
        """Run each job once."""
        for job in self.works(spark).values():
            job()

    def add_window(self) -> None:
        """Base and late fragments of the next window."""
        self._write(self._end_ms, Kind.BASE, FIRST_ORDER)
        for late in range(LATE):
            self._write(self._end_ms, Kind.LATE, FIRST_ORDER + 1 + late, samples=4, first=late)
        self._end_ms += PRODUCTION.window_ms

    def _write(self, start_ms: int, kind: Kind, order: int, samples: int = SAMPLES, first: int = 0) -> None:
        begins = []
        for pack in self._packs:
            key = ChunkKey(_pack_id(pack), start_ms, kind, order, 0)
            begins.append(partial(self._history.write, key, _chunk(pack, start_ms, order, samples, first)))
        if begins:
            write_all(begins, SystemClock())


def _labels(number: int) -> list[bytes]:
    labels = {"__name__": f"metric_{number % 20}", "job": "bench", "instance": f"host-{number}"}
    return [canonical_labels({**labels, "cpu": str(cpu)}) for cpu in range(SERIES)]


def _pack_id(pack: list[bytes]) -> int:
    return PlacementRule().place(pack[0]).pack_id


def _chunk(pack: list[bytes], start_ms: int, order: int, samples: int, first: int) -> bytes:
    ids = np.sort(np.array([series_id(one) for one in pack], np.uint64))
    times = start_ms + (first + np.arange(samples, dtype=np.int64)) * INTERVAL_MS
    (value,) = encode_chunk(
        Fragment(
            _pack_id(pack),
            start_ms,
            ids,
            np.arange(SERIES + 1, dtype=np.int64) * samples,
            np.tile(times, SERIES),
            np.arange(SERIES * samples, dtype=np.float64) + order,
            np.full(SERIES * samples, order, np.int64),
        ),
        window_ms=PRODUCTION.window_ms,
    )
    return value


@contextmanager
def _ground(folder: str, packs: int) -> Iterator[_Ground]:
    os.makedirs(folder)
    places = Places(f"sqlite:///{folder}/log.db", history=f"sqlite:///{folder}/history.db")
    make_topics(places.log, PARTITIONS, LOG_APPEND_TIME)
    with open_history_admin(places.history) as admin:
        ensure_history(admin, META)
    with open_log(places.log, settings=LogSettings(embedded_guest=True)) as log, places.open_history() as history:
        ground = _Ground(places, log, history, packs)
        loader = Loader(log, history, LoaderOptions(PRODUCTION, commit_interval_s=0.2), SystemClock(), seed=1)
        loader.start()
        try:
            yield ground
        finally:
            loader.close()
            loader.join(30.0)


@contextmanager
def _session(folder: str) -> Iterator[SparkSession]:
    conf = {
        "spark.local.dir": folder,
        "spark.driver.memory": "1g",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        "spark.log.level": "ERROR",
    }
    with session(SessionOptions(f"local[{CORES}]", "bench", ui=False, conf=conf)) as spark:
        yield spark
