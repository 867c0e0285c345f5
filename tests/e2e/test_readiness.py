"""Readiness tells the truth: not during replay, only on real trouble, back when it is over; and lag kills no process.

Trouble is injected from outside of the store: a broker that is frozen, and one that hands out few bytes a second.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stack.kafka import KafkaCluster
from support.servers.deployments import PARTITIONS, Deployment, on_kafka
from support.servers.logs import wait_until
from support.servers.probes import healthy, partitions_ready, serving
from support.servers.processes import Role, tsdb_json
from support.servers.quotas import release_readers, throttle_readers
from tsdb.client import Unavailable, WriteBatch, connect

NOISE_SAMPLES = 600_000  # Samples of incompressible values on one partition: about 5 MB, several fetches.
SLOW_BYTES_PER_S = 20_000
LEAVES_WITHIN_S = 30.0  # The promise.
RETURNS_WITHIN_S = 90.0
LAG_FLAGS = ("--lag-enter-s", "2", "--lag-leave-s", "4")


@pytest.fixture(scope="module")
def deployment(broker: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with on_kafka(tmp_path_factory.mktemp("readiness"), broker.bootstrap, store=LAG_FLAGS) as running:
        yield running


def test_not_ready_before_the_replay_is_done_and_ready_after(
    broker: KafkaCluster, deployment: Deployment, tmp_path: Path
) -> None:
    write_noise(deployment)
    fresh = Role(tmp_path, "store", *deployment.log, *LAG_FLAGS)
    try:
        fresh.start(ready=False)
        wait_until(lambda: bool(reasons(fresh)), RETURNS_WITHIN_S)
        # The store has its partitions. A log that freezes now keeps it where it is: each partition waits for topic
        # `series`, for the log, or replays.
        broker.suspend_broker(0)
        wait_until(lambda: "replaying" in reasons(fresh), RETURNS_WITHIN_S)
        check_not_ready(fresh, "replaying", "series_behind", "log_unavailable")
        broker.resume_broker(0)
        fresh.wait_ready(RETURNS_WITHIN_S)
        check_ready(fresh)
    finally:
        broker.resume_broker(0)
        fresh.kill()


def test_leaves_when_it_lags_and_returns(broker: KafkaCluster, deployment: Deployment) -> None:
    store = deployment.store
    with throttled(broker):
        write_noise(deployment)
        began_at = time.monotonic()
        wait_until(lambda: healthy(store) and store.ready()[0] == 503, LEAVES_WITHIN_S)
        left_s = time.monotonic() - began_at
        check_not_ready(store, "lagging")
        rows = tsdb_json("status", "--address", store.grpc)["partitions"]
        assert [row["reason"] for row in rows if not row["ready"]]
    store.wait_ready(RETURNS_WITHIN_S)
    check_ready(store)
    print(f"readers throttled: left after {left_s:.1f} s")


def test_leaves_when_the_broker_freezes_and_returns(broker: KafkaCluster, deployment: Deployment) -> None:
    store = deployment.store
    began_at = time.monotonic()
    broker.suspend_broker(0)
    try:
        wait_until(lambda: healthy(store) and store.ready()[0] == 503, LEAVES_WITHIN_S)
        left_s = time.monotonic() - began_at
        # The lag is certain first: the age of the last high watermark that the store has passed.
        check_not_ready(store, "lagging", "high_watermark_old")
    finally:
        broker.resume_broker(0)
    store.wait_ready(RETURNS_WITHIN_S)
    check_ready(store)
    print(f"broker frozen: left after {left_s:.1f} s")


@contextlib.contextmanager
def throttled(broker: KafkaCluster) -> Iterator[None]:
    throttle_readers(broker, SLOW_BYTES_PER_S)
    try:
        yield
    finally:
        release_readers(broker)


def write_noise(deployment: Deployment) -> None:
    """Write incompressible values of one instance, so of one partition."""
    end_ms, points = time.time_ns() // 1_000_000, 6_000
    rng = np.random.default_rng(3)
    batch = WriteBatch()
    for number in range(NOISE_SAMPLES // points):
        labels = {"__name__": "noise", "job": "noise", "instance": "i", "n": str(number)}
        batch.add(labels, end_ms - points + np.arange(points), rng.random(points))
    with deployment.writer() as client:
        client.write(batch)


def check_not_ready(store: Role, *possible: str) -> None:
    """Probe, gRPC health by partition and a refused read agree: the store is not ready. Liveness stays."""
    assert set(reasons(store)) & set(possible)
    wait_until(lambda: health_agrees(store), RETURNS_WITHIN_S)
    wait_until(lambda: not serving(store), RETURNS_WITHIN_S)
    with connect(store.grpc, timeout_s=2) as client, pytest.raises(Unavailable) as refused:
        client.select("noise", 0, time.time_ns() // 1_000_000)
    assert refused.value.reason in possible
    assert refused.value.retry_after_s
    assert healthy(store)


def check_ready(store: Role) -> None:
    """Every probe and a read report the store as ready."""
    wait_until(lambda: serving(store) and health_agrees(store), RETURNS_WITHIN_S)
    assert partitions_ready(store) == dict.fromkeys(range(PARTITIONS), True)
    with connect(store.grpc) as client:
        assert client.select("noise", 0, time.time_ns() // 1_000_000 + 1).samples >= NOISE_SAMPLES
    assert healthy(store)


def reasons(store: Role) -> list[str]:
    """Why partitions are not ready."""
    _, told = store.ready()
    states = ((told or {}).get("partitions") or {}).values()
    return [state["reason"] for state in states if not state["ready"]]


def health_agrees(store: Role) -> bool:
    """Whether gRPC health and the probe agree on each partition. The probe is read before and after."""
    before = partitions_ready(store)
    told = {number: serving(store, number) for number in range(PARTITIONS)}
    return told == before == partitions_ready(store)
