"""The driver of jobs that build chunks has no chunk in memory. With four times the samples it gets the same bytes from
its tasks, and its Python uses the same memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from spark_backfill.jobs.rebuild.job import rebuild
from spark_backfill.jobs.verify.job import VerifyOptions, verify
from spark_backfill.pipeline.planner import BatchLimits
from support.data.heads import announcement, id_of
from support.data.recorded_log import BASE_MS, RecordedLog
from support.oracles.chunk_twin import pack_of
from support.servers.histories import HistoryFactory
from support.servers.loaders import is_loaded
from support.servers.logs import LogFactory, wait_until
from support.spark.driver_memory import ROOM_BYTES, DriverUsage
from support.spark.pipelines import build_options, run_all, still
from support.spark.spark import places
from tsdb.chunks.late_scan import Windows
from tsdb.codec.records.log_record import encode_record, encode_tick
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.log.interface import METRICS, SERIES, Log
from tsdb.log.sqlite.values import DICTIONARY_BYTES
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import DEMO
from tsdb.model.window import ceil_to, index_epoch

# Each partition has more than 1 MiB, which a driver gets along with one requested record.
PARTITIONS, SERIES_EACH, SAMPLES, EVERY_MS = 2, 40, 20, 500
TIMES = RecordedLog(PARTITIONS, windows=4)  # Only its times are used.
FIRST_MS = ceil_to(BASE_MS, DEMO.window_ms)
WINDOWS = Windows(FIRST_MS, FIRST_MS + 4 * DEMO.window_ms)
WAIT_S = 60.0


@pytest.mark.soak  # tests/spark/test_driver_memory.py has other jobs in each run.
def test_chunks_of_four_times_the_samples_are_no_more_for_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    # To read a record of the embedded log a process expands the dictionary of its partition, whatever the log's size.
    usage = DriverUsage(spark, ROOM_BYTES + PARTITIONS * DICTIONARY_BYTES)
    for times in (1, 4):
        with (
            LogFactory(f"sqlite:///{tmp_path}/log-{times}.db", "") as logs,
            HistoryFactory(f"sqlite:///{tmp_path}/history-{times}.db") as histories,
        ):
            logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
            clock = still(TIMES.end_ms)
            log = logs.open(clock=clock)
            samples = record(log, times)
            histories.create()
            where, checkpoint = places(logs, histories), tmp_path / f"checkpoint-{times}"
            made = usage.of(
                "pipeline",
                lambda: run_all(spark, log, where, checkpoint, clock=clock, limits=BatchLimits()),  # noqa: B023  # called at once
            )
            assert made.sums["samples"] > samples / 2
            build = build_options(log, where)
            rebuilt = usage.of("rebuild", lambda: rebuild(spark, build, WINDOWS))  # noqa: B023  # called at once
            assert rebuilt.bytes > samples
            with_loader(log, histories.open())
            options = VerifyOptions(WINDOWS)
            assert usage.of("verify", lambda: verify(spark, build, options)).ok  # noqa: B023  # called at once
    usage.assert_independent_of_data()


def record(log: Log, times: int) -> int:
    """Write the same windows and series with `times` times as many samples, every tenth record late by two windows.
    Returns the number of samples.
    """
    random, moments = np.random.default_rng(times), range(BASE_MS, TIMES.last_ms, EVERY_MS // times)
    for partition in range(PARTITIONS):
        numbers = range(partition * SERIES_EACH, (partition + 1) * SERIES_EACH)
        for number in numbers:
            key, value = announcement(number, index_epoch(id_of(number), BASE_MS))
            log.append_sync(SERIES, partition, value, key=key, timestamp_ms=BASE_MS)
        for at, now_ms in enumerate(moments):
            behind_ms = 2 * DEMO.window_ms if at % 10 == 9 else 0
            value = dense_record(numbers, now_ms - behind_ms, random)
            log.append(METRICS, partition, value, timestamp_ms=now_ms, on_done=lambda _: None)
        log.append_sync(METRICS, partition, encode_tick(), timestamp_ms=TIMES.end_ms)
    return PARTITIONS * len(moments) * SERIES_EACH * SAMPLES


def dense_record(numbers: range, now_ms: int, random: np.random.Generator) -> bytes:
    """Some samples of each series up to now, with values that do not compress."""
    series = sorted((pack_of(number), id_of(number)) for number in numbers)
    packs, lengths = np.unique(np.array([pack for pack, _ in series], np.uint64), return_counts=True)
    ids = np.repeat(np.array([one for _, one in series], np.uint64), SAMPLES)
    ts_ms = np.tile(now_ms - np.arange(SAMPLES)[::-1], len(series))
    return encode_record(packs, (lengths * SAMPLES).astype(np.uint32), ids, ts_ms, random.normal(size=len(ids)))


def with_loader(log: Log, history: ChunkStore) -> None:
    """History holds all that `chunks` does; the loader has ended."""
    loader = Loader(log, history, LoaderOptions(DEMO, commit_interval_s=0.02), SystemClock(), seed=1)
    loader.start()
    wait_until(lambda: is_loaded(log) and len(history.loaded(log.topic_id(METRICS))) == PARTITIONS)
    loader.close()
    assert loader.join(WAIT_S)
