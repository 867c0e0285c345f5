"""A rebuild of a month whose driver is killed five times, with JVM and workers, goes on by its job id each time.

The guarantee: `chunks` has the bytes of an uninterrupted rebuild, and no window is built twice unless it was in flight
at a kill.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from bench.ground import fill, make_topics
from bench.spark.spark_ground import build_options
from bench.workload import INTERVAL_MS, Workload
from spark_backfill.building.build import build
from spark_backfill.building.items import BaseItem
from spark_backfill.building.plan import items_of, plan_partitions
from support.servers.logs import wait_until
from support.spark.pipeline_process import DriverProcess
from support.spark.spark import TASKS_AT_ONCE
from tsdb.chunks.late_scan import Windows
from tsdb.codec.chunk.key import ChunkKey, WindowKey, decode_key
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import CHUNKS, META, METRICS, Log
from tsdb.log.open import open_log
from tsdb.log.records import read_to_end
from tsdb.log.settings import LogSettings
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import floor_to

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_800)]

SERIES, DAYS = 1_000, 30
PARTITIONS = 2
KILLS = 5
JOB = "month"
DAY_MS = 24 * 3600 * 1000
WITHIN_S = 600.0

Key = tuple[int, bytes]  # Partition and key of a record of `chunks`.
Window = tuple[int, int]  # Partition and start of a window.


@pytest.fixture
def month(tmp_path: Path) -> tuple[str, Windows]:
    """URL of a log with the samples of a month, and the month."""
    url = f"sqlite:///{tmp_path / 'log.db'}"
    make_topics(url, PARTITIONS, CREATE_TIME)
    closes_ms = PRODUCTION.grace_ms + PRODUCTION.late_minute_ms
    end_ms = floor_to(int(time.time() * 1000) - closes_ms, PRODUCTION.window_ms)
    windows = Windows(end_ms - DAYS * DAY_MS, end_ms)
    fill(url, Workload(SERIES, PARTITIONS), windows.start_ms, samples=DAYS * DAY_MS // INTERVAL_MS)
    with open_log(url) as log:
        for partition in range(PARTITIONS):
            log.append_sync(METRICS, partition, encode_tick(), timestamp_ms=end_ms + closes_ms)
    return url, windows


def wanted(log: Log, url: str, windows: Windows) -> dict[Key, bytes]:
    """The records of an uninterrupted rebuild."""
    options = build_options(url)
    items = items_of(log, plan_partitions(log, windows, PRODUCTION), windows, PRODUCTION)
    return {
        (item.partition, record.key): record.value
        for item in items
        if isinstance(item, BaseItem)
        for record in build(item, log, options, SystemClock())
    }


def noted(log: Log) -> set[Window]:
    """Windows that are noted as built."""
    prefix = f"rebuild/{JOB}/base/".encode()
    keys = {record.key: record.value for record in read_to_end(log, META, 0) if record.key}
    found = (key.removeprefix(prefix).split(b"/") for key, value in keys.items() if key.startswith(prefix) and value)
    return {(int(partition), int(start_ms)) for partition, start_ms in found}


def written(log: Log) -> list[tuple[Key, bytes]]:
    """All records of `chunks`, of each partition in their order."""
    return [
        ((partition, record.key or b""), record.value or b"")
        for partition in range(PARTITIONS)
        for record in read_to_end(log, CHUNKS, partition)
    ]


def window_of(key: Key) -> Window:
    decoded = decode_key(key[1])
    assert isinstance(decoded, ChunkKey | WindowKey)
    return key[0], decoded.window_start_ms


def test_a_month_is_rebuilt_to_the_bit_and_finished_windows_are_not_built_again(
    month: tuple[str, Windows], tmp_path: Path
) -> None:
    url, windows = month

    def start() -> DriverProcess:
        scratch = tmp_path / "scratch"
        arguments = (url, str(windows.start_ms), str(windows.end_ms), JOB, str(scratch))
        return DriverProcess(tmp_path, "support.spark.rebuild_process", *arguments)

    with open_log(url, settings=LogSettings(embedded_guest=True)) as log:
        want = wanted(log, url, windows)
        count = len({window_of(key) for key in want})
        assert count == PARTITIONS * DAYS * 6
        finished: list[set[Window]] = []
        for kill in range(1, KILLS + 1):
            driver = start()
            try:
                wait_until(lambda: not driver.running or len(noted(log)) >= kill * count // (KILLS + 1), WITHIN_S)  # noqa: B023
                assert driver.running, (tmp_path / "driver.log").read_text()[-4000:]
            finally:
                driver.kill()
            finished.append(noted(log))
        driver = start()
        try:
            wait_until(lambda: not driver.running, WITHIN_S)
        finally:
            driver.kill()
        found = written(log)
        assert dict(found) == want, (tmp_path / "driver.log").read_text()[-4000:]
        assert noted(log) == set(), "a finished rebuild leaves no note"
    times = Counter(key for key, _ in found)
    again = {window_of(key) for key, number in times.items() if number > 1}
    assert len(again) <= KILLS * TASKS_AT_ONCE, "no more windows than were in flight"
    print(f"\n{count} windows, {len(found)} records, {[len(one) for one in finished]} at the kills, {len(again)} again")
