"""Attacks the promise that OK survives whatever acks=all survives: three brokers, replication 3, through the whole way.

One broker lost costs no request. With two lost no write is answered OK, and all goes on when they are back. A killed
leader is replaced within 30 s, end to end: a write answered OK and read back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from stack.kafka import KafkaCluster
from support.drills.outages import GATEWAY_FLAGS, OKS_BETWEEN, RECOVERED_WITHIN_S
from support.drills.writers import WRITERS, Writers
from support.servers.deployments import Deployment, on_kafka
from support.servers.logs import wait_until
from support.servers.probes import healthy, write_once
from tsdb.client import ReadOptions, Unavailable
from tsdb.log.interface import METRICS

FAIL_OVER_WITHIN_S = 30.0
REFUSALS = 2 * WRITERS


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    with KafkaCluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def deployment(three: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    scratch = tmp_path_factory.mktemp("three")
    with on_kafka(scratch, three.bootstrap, replication=3, gateway=GATEWAY_FLAGS) as running:
        yield running


@contextlib.contextmanager
def without(three: KafkaCluster, *brokers: int) -> Iterator[None]:
    """Kill these brokers for the block, and start them again at its end."""
    for number in brokers:
        three.kill_broker(number)
    try:
        yield
    finally:
        for number in brokers:
            three.start_broker(number)


def leader(three: KafkaCluster, deployment: Deployment, partition: int) -> int:
    """Number of the broker that leads a partition of the log."""
    return three.leader(f"{deployment.log[-1]}{METRICS}", partition)


def judge(three: KafkaCluster, deployment: Deployment, writers: Writers, what: str) -> None:
    """Check the answers once all brokers run again."""
    three.wait_ready()
    deployment.store.wait_ready(RECOVERED_WITHIN_S)
    with deployment.reader() as reader:
        print(f"{what}; {writers.oks} OKs, {len(writers.errors)} refused, {writers.judge(reader)} samples read back")


def test_one_broker_lost_costs_no_request(three: KafkaCluster, deployment: Deployment) -> None:
    with Writers(deployment.gateway.grpc) as writers:
        writers.wait_for_oks(OKS_BETWEEN)
        follower = (leader(three, deployment, 0) + 1) % 3
        with without(three, follower):
            writers.wait_for_oks(10 * OKS_BETWEEN, FAIL_OVER_WITHIN_S)
    assert writers.errors == []
    judge(three, deployment, writers, f"one lost, slowest call {writers.slowest_s:.1f} s")


def test_a_killed_leader_is_replaced_end_to_end_within_the_bound(three: KafkaCluster, deployment: Deployment) -> None:
    with Writers(deployment.gateway.grpc) as writers, deployment.reader() as reader:
        writers.wait_for_oks(OKS_BETWEEN)
        written = writers.tokens()[0].partition
        with without(three, leader(three, deployment, written)):
            killed_at = time.monotonic()
            before = {token.partition: token.record_offset for token in writers.tokens()}
            wait_until(lambda: all(t.record_offset > before[t.partition] for t in writers.tokens()), FAIL_OVER_WITHIN_S)
            wanted = ReadOptions(after=writers.tokens())
            reader.select(writers.selector, 0, writers.base_ms + 1, options=wanted, timeout_s=FAIL_OVER_WITHIN_S)
            recovered_s = time.monotonic() - killed_at
            writers.wait_for_oks(OKS_BETWEEN)
    assert recovered_s < FAIL_OVER_WITHIN_S
    judge(
        three, deployment, writers, f"leader killed, {len(before)} partitions written and read in {recovered_s:.1f} s"
    )


def test_two_brokers_lost_means_refused_until_they_are_back(three: KafkaCluster, deployment: Deployment) -> None:
    with Writers(deployment.gateway.grpc, timeout_s=5.0) as writers:
        writers.wait_for_oks(OKS_BETWEEN)
        stays = leader(three, deployment, 0)
        with without(three, *(number for number in range(3) if number != stays)):
            answer = write_once(deployment.gateway, 5.0)
            assert isinstance(answer.error, Unavailable)
            assert answer.error.retry_after_s
            oks, refused = writers.oks, len(writers.errors)
            wait_until(lambda: len(writers.errors) >= refused + REFUSALS, RECOVERED_WITHIN_S)
            assert writers.oks == oks, "an OK with one replica of three"
            assert healthy(deployment.gateway)
            assert healthy(deployment.store)
        mended_at = time.monotonic()
        writers.wait_for_oks(OKS_BETWEEN, RECOVERED_WITHIN_S)
        recovered_s = time.monotonic() - mended_at
    reasons = ", ".join(sorted({error.reason for error in writers.errors}))
    judge(three, deployment, writers, f"two lost: refused ({reasons}), OK again after {recovered_s:.1f} s")
