"""`tsdb standalone --history iceberg+file://` as a process: late samples come from the table, also after a kill.

The process has a faster clock, because memory holds the samples of 90 s.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from support.servers.chunkers import FastClock
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import WriteBatch, connect

SCRIPT = Path(__file__).parents[1] / "support/scripts/fast_clock.py"
SPEED = 5.0
DAY_MS = 86_400_000
SERIES, SAMPLES = 5, 40
HISTORY = 'tsdb_query_partitions_answered_total{source="history"}'


@pytest.mark.timeout(400)
def test_old_samples_are_answered_from_the_table_before_and_after_a_kill(tmp_path: Path) -> None:
    url = f"iceberg+file://{tmp_path}/table/samples"
    arguments = ("--time-set", "demo", "--history", url, "--tables-commit-interval-s", "0.1")
    clock = FastClock(time.time_ns() // 1_000_000, SPEED)
    wrapper = (sys.executable, str(SCRIPT), str(clock.base_ms), repr(clock.began), str(clock.speed))
    first_ms = clock.base_ms - DAY_MS
    with Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), *arguments, wrapper=wrapper) as role:
        role.wait_ready()
        write(role, first_ms)
        wait_until(lambda: answer(role, first_ms) == expected(first_ms), describe=lambda: len(answer(role, first_ms)))
        role.kill()
        role.start()
        role.wait_ready()
        wait_until(lambda: answer(role, first_ms) == expected(first_ms), describe=lambda: len(answer(role, first_ms)))
        # Memory answers for all times of a young log, until it drops the first windows.
        wait_until(lambda: is_from_history(role, first_ms, clock), within_s=280.0)
    assert (tmp_path / "table/samples/metadata/version-hint.text").exists()
    assert (tmp_path / "table/samples_series/metadata/version-hint.text").exists()


def is_from_history(role: Role, first_ms: int, clock: FastClock) -> bool:
    """Write to all partitions, so that time passes for each of them, and read the old samples."""
    batch = WriteBatch()
    for instance in range(20):
        labels = {"__name__": "new", "job": "t", "instance": str(instance)}
        batch.add(labels, np.array([clock.now_ms()]), np.ones(1))
    with connect(role.grpc) as client:
        client.write(batch)
    assert answer(role, first_ms) == expected(first_ms)
    return role.metrics()[HISTORY] > 0


def expected(first_ms: int) -> dict[tuple[str, int], float]:
    return {(str(series), first_ms + 1000 * at): series + at / 7 for series in range(SERIES) for at in range(SAMPLES)}


def write(role: Role, first_ms: int) -> None:
    batch = WriteBatch()
    for series in range(SERIES):
        ts_ms = first_ms + 1000 * np.arange(SAMPLES)
        batch.add({"__name__": "old", "job": "t", "instance": str(series)}, ts_ms, series + np.arange(SAMPLES) / 7)
    with connect(role.grpc) as client:
        client.write(batch)


def answer(role: Role, first_ms: int) -> dict[tuple[str, int], float]:
    with connect(role.grpc) as client:
        found = client.select("old", first_ms, first_ms + 1000 * SAMPLES)
    return {
        (one.labels["instance"], int(ts_ms)): float(value)
        for one in found.series
        for ts_ms, value in zip(one.ts_ms, one.values, strict=True)
    }
