"""Attacks the promise that moving partitions costs no write: plan and apply under 50 k samples/s, on three brokers.

Two replicas, and every write needs both: a step that took one away too early would refuse writes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
from support.drills.writers import Writers
from support.kafka.reassignments import LOOK_EVERY_S, Apply
from support.kafka.steady_writes import SteadyWrites
from support.servers.deployments import Deployment, on_kafka
from support.servers.processes import run_tsdb, tsdb_ok
from tsdb.log.interface import METRICS
from tsdb.log.kafka.operations.admin import ClusterAdmin
from tsdb.log.settings import LogSettings
from tsdb.model.clock import SystemClock

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

SAMPLES_S = 50_000
REST_S = 0.2  # Pause of each checked writer after an answer, which leaves the cores to the steady writes.
BEFORE_S = 40.0  # Time of writes before the first plan, so that the plan has data to copy.
THROTTLE_MIB_S = "1.5"


@pytest.fixture
def three() -> Iterator[KafkaCluster]:
    with KafkaCluster(3) as cluster:
        yield cluster


def test_partitions_move_under_50_k_samples_a_second_without_a_refused_write(
    three: KafkaCluster, tmp_path: Path
) -> None:
    with (
        on_kafka(tmp_path, three.bootstrap, replication=2) as deployment,
        ClusterAdmin(three.bootstrap, LogSettings(), SystemClock()) as admin,
    ):
        topic = deployment.log[-1] + METRICS
        admin.change_settings("topic", topic, {"min.insync.replicas": "2"})
        with (
            SteadyWrites(deployment.gateway, SAMPLES_S) as steady,
            Writers(deployment.gateway.grpc, rest_s=REST_S) as writers,
        ):
            threading.Event().wait(BEFORE_S)
            _refused_below_what_producers_write(deployment)
            for number, target in enumerate((("--drain", "3"), ("--add", "3"))):
                _move(deployment, admin, tmp_path / f"plan-{number}.json", *target)
            rate, refused = steady.samples_s, steady.refused()
        assert (refused, writers.errors) == ({}, [])
        assert rate > 0.9 * SAMPLES_S
        replicas = [broker for one in admin.cluster().of_topics([topic]) for broker in one.replicas]
        assert sorted(replicas) == [1, 1, 2, 2, 3, 3]
        deployment.store.wait_ready()
        with deployment.reader() as reader:
            checked = writers.judge(reader)
        print(
            f"{rate:,.0f} samples/s, {steady.written:,} samples and {writers.oks} requests written, none refused, "
            f"slowest {writers.slowest_s:.2f} s; {checked} samples read back"
        )


def _refused_below_what_producers_write(deployment: Deployment) -> None:
    """A throttle of 10 KiB/s for partitions that each get some 300 KiB/s."""
    arguments = ("--topic", METRICS, "--drain", "3", "--throttle-mib-s", "0.01")
    done = run_tsdb("kafka", "plan", *deployment.log, *arguments)
    assert done.returncode == 1
    assert b"is not above the " in done.stderr
    assert b"that producers write" in done.stderr


def _move(deployment: Deployment, admin: ClusterAdmin, file: Path, *target: str) -> None:
    """Plan and apply one target; every partition keeps two replicas in sync, which every write needs."""
    options = ("--throttle-mib-s", THROTTLE_MIB_S, "--partitions-at-once", "1", "--file", str(file))
    print(tsdb_ok("kafka", "plan", *deployment.log, *target, *options).decode())
    with Apply(deployment.log, file) as apply:
        while apply.runs_for(LOOK_EVERY_S):
            assert admin.cluster().under_min_isr() == []
        print(apply.finish())
