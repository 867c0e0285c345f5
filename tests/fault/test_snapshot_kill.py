"""Attacks snapshots of heads: SIGKILL at random instants, many of them in the middle of a snapshot's write.

A start from snapshots must answer with every sample told OK, and with the same bytes as a start without. A snapshot is
never more than a cache: its folder can be deleted at any time.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from support.drills.drills import kill_gateway, kill_store
from support.servers.deployments import Deployment, embedded, on_kafka
from support.servers.logs import wait_until
from support.servers.processes import Role
from support.shared_servers import SharedBroker
from tsdb.client import SelectResult

OFTEN = ("--snapshot-interval-s", "1")
RESTORED, RECORDS = "tsdb_store_snapshots_restored_total", "tsdb_replay_records_total"
SPAN_MS = 3_600_000


def test_an_embedded_process_killed_in_its_snapshots_loses_nothing(tmp_path: Path) -> None:
    with embedded(tmp_path, *OFTEN) as deployment:
        kill_gateway(deployment, kills=3, seed=13)
        check_starts(deployment, next(tmp_path.glob("data-*/snapshots")))


def test_a_store_on_kafka_killed_in_its_snapshots_loses_nothing(kafka: SharedBroker, tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    with on_kafka(tmp_path, kafka.bootstrap, store=("--snapshot-dir", str(folder), *OFTEN)) as deployment:
        kill_store(deployment, kills=2, seed=17)
        check_starts(deployment, folder)


def check_starts(deployment: Deployment, folder: Path) -> None:
    """A start after a kill, one after a drain, and one without snapshots give the same answers."""
    store = deployment.store
    # The names of the written series are random, so a partition may have none. Its head needs no snapshot.
    ends = next_offsets(store)
    partitions = sum(end > 0 for end in ends.values())
    wait_until(lambda: len(list(folder.glob("*.snapshot"))) == partitions, 60.0)
    end_ms = time.time_ns() // 1_000_000
    want = answer(deployment, end_ms)
    assert want.samples > 0
    store.kill()
    start(store, ends)
    assert store.metrics()[RESTORED] == partitions
    assert_same(answer(deployment, end_ms), want)
    assert store.terminate() == 0
    start(store, ends)
    assert store.metrics()[RESTORED] == partitions
    replayed = store.metrics()[RECORDS]
    assert_same(answer(deployment, end_ms), want)
    store.kill()
    shutil.rmtree(folder)
    start(store, ends)
    assert store.metrics()[RESTORED] == 0
    assert_same(answer(deployment, end_ms), want)
    # The chunk stage of an embedded process replays all records at each start, and may be behind its store.
    wait_until(lambda: store.metrics()[RECORDS] > replayed, 60.0)
    print(f"{replayed} records replayed after a drain with snapshots, {store.metrics()[RECORDS]} without")


def next_offsets(store: Role) -> dict[str, int]:
    return {number: one["next_offset"] for number, one in store.ready()[1]["partitions"].items()}


def start(store: Role, ends: dict[str, int]) -> None:
    """Start, and wait until everything is applied: a store is ready while it lags by less than 5 s."""
    store.start()
    wait_until(lambda: all(end >= ends[number] for number, end in next_offsets(store).items()), 60.0)


def answer(deployment: Deployment, end_ms: int) -> SelectResult:
    with deployment.reader() as client:
        return client.select('{__name__=~".+"}', end_ms - SPAN_MS, end_ms)


def assert_same(got: SelectResult, want: SelectResult) -> None:
    assert list(got.canonical) == list(want.canonical)
    for name in ("series_ids", "starts", "ts_ms", "values"):
        assert getattr(got, name).tobytes() == getattr(want, name).tobytes(), name
