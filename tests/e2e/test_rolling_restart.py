"""Stores come and go under load: a rolling restart costs no query of clients that follow readiness, and a second store
carries its share at the same cost a query."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

import numpy as np
import psutil
import pytest

from support.drills.readers import Readers
from support.drills.writers import Writers
from support.servers.deployments import Deployment, on_kafka
from support.servers.processes import Role
from support.shared_servers import SharedBroker
from tsdb.client import ReadOptions, WriteBatch, connect

SERIES = 600
POINTS = 240
SAMPLES = SERIES * POINTS
INSTANCES = 20
SOME = 'asked{instance="i0"}'  # The samples of one instance.
THREADS = 4
# Pause of a thread between requests. Some requests are always in flight, and two cores can still start a store.
REST_S = 0.05
ANSWERS = 60  # Number of answers between steps of the restart.
MEASURED_ANSWERS = 800
# Two stores, a gateway, a broker and the load's own threads run at once. With fewer cores they only wait for each
# other.
CORES_FOR_SPEED = 8
COST_MAX = 1.5
SPEED_MIN = 1.8

Span = tuple[int, int]


@pytest.fixture(scope="module")
def deployment(kafka: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with on_kafka(tmp_path_factory.mktemp("rolling"), kafka.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def second(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    with Role(tmp_path_factory.mktemp("second"), "store", *deployment.log) as role:
        yield role


@pytest.fixture(scope="module")
def span(deployment: Deployment, second: Role) -> Span:
    """Write the samples of the queries and wait until both stores show them."""
    end_ms = time.time_ns() // 1_000_000
    ts_ms = end_ms - np.arange(POINTS)[::-1] * 1000
    rng = np.random.default_rng(9)
    batch = WriteBatch()
    for number in range(SERIES):
        labels = {"__name__": "asked", "job": "rolling", "instance": f"i{number % INSTANCES}", "n": str(number)}
        batch.add(labels, ts_ms, rng.normal(50, 10, POINTS).round(2))
    asked = int(ts_ms[0]), end_ms + 1
    with deployment.writer() as writer:
        tokens = writer.write(batch).tokens
    for store in (deployment.store, second):
        with connect(store.grpc) as reader:
            assert reader.select("asked", *asked, options=ReadOptions(after=tokens)).samples == SAMPLES
    return asked


def test_a_rolling_restart_fails_no_query(deployment: Deployment, second: Role, span: Span) -> None:
    stores = [deployment.store, second]
    with (
        Writers(deployment.gateway.grpc, rest_s=REST_S) as writers,
        Readers(stores, SOME, span, SAMPLES // INSTANCES, THREADS, rest_s=REST_S) as readers,
    ):
        for number, store in enumerate(stores):
            readers.wait_for_answers_of(number, ANSWERS)
            assert store.terminate() == 0
            readers.wait_for_answers(ANSWERS)
            store.start()
            readers.wait_for_answers_of(number, ANSWERS)
    assert readers.failed == []
    assert writers.errors == []
    for store in stores:
        with connect(store.grpc) as reader:
            checked = writers.judge(reader)
    print(
        f"rolling restart: {readers.answered} queries, 0 failed, {readers.passed_on} taken over by the other store; "
        f"{writers.oks} OKs, {checked} samples read back from both"
    )


@pytest.mark.soak
def test_a_second_store_carries_its_share_at_the_same_cost(deployment: Deployment, second: Role, span: Span) -> None:
    alone_s, alone_per_s = measure([deployment.store], span)
    pair_s, pair_per_s = measure([deployment.store, second], span)
    print(
        f"CPU a query of {SAMPLES} samples: {alone_s * 1000:.2f} ms alone, {pair_s * 1000:.2f} ms with two; "
        f"{alone_per_s:.0f} and {pair_per_s:.0f} queries/s on {os.cpu_count()} cores"
    )
    assert pair_s < COST_MAX * alone_s
    if (os.cpu_count() or 1) >= CORES_FOR_SPEED:
        assert pair_per_s >= SPEED_MIN * alone_per_s


def measure(stores: Sequence[Role], span: Span) -> tuple[float, float]:
    """CPU seconds of the stores a query, and queries a second."""
    with Readers(stores, "asked", span, SAMPLES, THREADS) as readers:
        readers.wait_for_answers(ANSWERS)
        cpu_s, at, answered = cpu_seconds(stores), time.monotonic(), readers.answered
        readers.wait_for_answers(MEASURED_ANSWERS)
        cpu_s, seconds, count = cpu_seconds(stores) - cpu_s, time.monotonic() - at, readers.answered - answered
    assert readers.failed == []
    return cpu_s / count, count / seconds


def cpu_seconds(stores: Sequence[Role]) -> float:
    return sum(sum(psutil.Process(store.process.pid).cpu_times()[:2]) for store in stores)
