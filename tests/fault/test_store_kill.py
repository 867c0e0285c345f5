"""Attacks the promise that no component owns state: the store dies by SIGKILL while it replays, and under load.

It must come back from the log alone and answer as before, byte for byte; writers and watchers go on meanwhile. (With
the embedded log the store dies with its gateway: test_gateway_kill.py.)
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import numpy as np
import pytest

from support.drills.drills import OKS_BETWEEN, kill_store
from support.drills.watcher import Watcher
from support.drills.writers import Writers
from support.servers.deployments import Deployment, on_kafka
from support.servers.processes import Role
from support.shared_servers import SharedBroker
from tsdb.client import ReadOptions, SelectResult, WriteBatch, WriteResult
from tsdb.model.labels import canonical_labels

SERIES = 2_000
POINTS = 1_500  # Points of each series. Their replay takes long enough for a kill in its middle.
TRIES = 20
SPAN_MS = 3_600_000
WATCH_SAMPLES = 1 << 20


@pytest.fixture(scope="module")
def deployment(kafka: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    # Writers do not wait for a killed store: a watcher must find all that they write until the store is back.
    ring = ("--watch-samples-max", str(WATCH_SAMPLES))
    with on_kafka(tmp_path_factory.mktemp("store"), kafka.bootstrap, store=ring) as running:
        yield running


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.soak)])
def test_a_store_killed_in_the_middle_of_its_replay_comes_back_with_the_same_answers(
    deployment: Deployment, kills: int
) -> None:
    end_ms = time.time_ns() // 1_000_000
    written = write_much(deployment, end_ms)
    before = answer_of(deployment, written, end_ms)
    assert before.samples == SERIES * POINTS
    killed_at = [kill_in_replay(deployment.store, random.Random(11)) for _ in range(kills)]
    deployment.store.start()
    assert_same(answer_of(deployment, written, end_ms), before)
    print(f"killed in replay with {killed_at} of the records applied; {before.samples} samples are the same after")


def test_a_store_killed_under_load_comes_back_with_all_that_was_told_ok(deployment: Deployment) -> None:
    kill_store(deployment, kills=1, seed=7)


def test_a_watch_goes_on_across_a_kill_with_every_sample_once(deployment: Deployment) -> None:
    writers = Writers(deployment.gateway.grpc)
    with Watcher(deployment.store, writers.selector) as watcher:
        with writers:
            writers.wait_for_oks(OKS_BETWEEN)
            deployment.store.kill()
            writers.wait_for_oks(OKS_BETWEEN)
            deployment.store.start()
            writers.wait_for_oks(OKS_BETWEEN)
        watcher.wait_for(writers.acked)
        assert watcher.repeated == []
    print(f"{watcher.samples} samples watched across a kill, each record once")


def write_much(deployment: Deployment, end_ms: int) -> WriteResult:
    """SERIES x POINTS samples over the last hour."""
    rng = np.random.default_rng(5)
    ts_ms = end_ms - SPAN_MS + np.arange(POINTS, dtype=np.int64) * (SPAN_MS // POINTS)
    with deployment.writer() as client:
        batch = WriteBatch()
        for number in range(SERIES):
            labels = {"__name__": "much", "job": "replay", "instance": f"i{number % 50}", "n": str(number)}
            batch.add(canonical_labels(labels), ts_ms, np.cumsum(rng.integers(0, 9, POINTS)).astype(np.float64))
        return client.write(batch)


def answer_of(deployment: Deployment, written: WriteResult, end_ms: int) -> SelectResult:
    """Everything that write_much wrote, once it is visible."""
    with deployment.reader() as client:
        options = ReadOptions(after=written.tokens)
        return client.select("much", end_ms - SPAN_MS, end_ms + 1, options=options)


def kill_in_replay(store: Role, rng: random.Random) -> str:
    """Kill the store while a part of the log is applied. Returns applied and all records, as text."""
    for _ in range(TRIES):
        store.kill()
        store.start(ready=False)
        share = rng.uniform(0.05, 0.6)
        while (seen := replayed(store)) is None or (seen[0] < share * seen[1] and seen[1] > 0):
            assert store.process.poll() is None, "the store ended by itself"
            time.sleep(0.005)  # Interval of checks of another process. The loop's condition is the claim.
        if 0 < seen[0] < seen[1]:
            store.kill()
            return f"{seen[0]}/{seen[1]}"
    raise AssertionError(f"never seen half done in {TRIES} starts")


def replayed(store: Role) -> tuple[int, int] | None:
    """Records applied and records in the log, all partitions; None while the store does not answer."""
    _, body = store.ready()
    states = list(((body or {}).get("partitions") or {}).values())
    if not states or any(state["high_watermark"] is None for state in states):
        return None
    return sum(state["next_offset"] for state in states), sum(state["high_watermark"] for state in states)


def assert_same(got: SelectResult, want: SelectResult) -> None:
    assert list(got.canonical) == list(want.canonical)
    for name in ("series_ids", "starts", "ts_ms", "values"):
        assert getattr(got, name).tobytes() == getattr(want, name).tobytes(), name
