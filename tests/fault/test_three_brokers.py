"""Attacks the promise that OK survives whatever acks=all survives: three brokers, replication 3, through the whole way.

One broker lost costs no request. With two lost no write is answered OK, and all goes on when they are back. A killed
leader is replaced within 30 s, end to end: a write answered OK and read back.

`tsdb kafka apply` moves replicas there. After SIGKILL the same command takes the step over. After SIGTERM no throttle
and no half-made move is left. No partition has fewer replicas in sync meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stack.kafka import KafkaCluster
from support.cli import Shell
from support.drills.drills import REST_S
from support.drills.outages import GATEWAY_FLAGS, OKS_BETWEEN, RECOVERED_WITHIN_S
from support.drills.writers import WRITERS, Writers
from support.kafka.reassignments import LOOK_EVERY_S, Apply, fill
from support.servers.deployments import PARTITIONS, Deployment, create_topics, on_kafka
from support.servers.logs import wait_until
from support.servers.probes import healthy, write_once
from tsdb.client import ReadOptions, Unavailable
from tsdb.log.interface import METRICS
from tsdb.log.kafka.operations.admin import ClusterAdmin
from tsdb.log.kafka.operations.state import PartitionReplicas
from tsdb.log.settings import LogSettings
from tsdb.model.clock import SystemClock

FAIL_OVER_WITHIN_S = 120.0  # Bounds the wait, because a dead leader does not come back by itself.
REFUSALS = WRITERS
MIB = 1 << 20
PARTITION_BYTES = 2 * MIB
QUICK = ("--measure", "200ms")
# A partition takes minutes. Kafka lets a throttled copy burst for eleven seconds' worth of its rate, 113 KiB.
SLOW = ("--throttle-mib-s", "0.01", "--partitions-at-once", "1", *QUICK)
SOON_S = 60.0


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
    with Writers(deployment.gateway.grpc, rest_s=REST_S) as writers:
        writers.wait_for_oks(OKS_BETWEEN)
        follower = (leader(three, deployment, 0) + 1) % 3
        with without(three, follower):
            writers.wait_for_oks(10 * OKS_BETWEEN, FAIL_OVER_WITHIN_S)
    assert writers.errors == []
    judge(three, deployment, writers, f"one lost, slowest call {writers.slowest_s:.1f} s")


def test_a_killed_leader_is_replaced_end_to_end(three: KafkaCluster, deployment: Deployment) -> None:
    with Writers(deployment.gateway.grpc, rest_s=REST_S) as writers, deployment.reader() as reader:
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
    judge(
        three, deployment, writers, f"leader killed, {len(before)} partitions written and read in {recovered_s:.1f} s"
    )


def test_two_brokers_lost_means_refused_until_they_are_back(three: KafkaCluster, deployment: Deployment) -> None:
    with Writers(deployment.gateway.grpc, timeout_s=5.0, rest_s=REST_S) as writers:
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


@pytest.fixture(scope="module")
def admin(three: KafkaCluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(three.bootstrap, LogSettings(), SystemClock()) as opened:
        yield opened


@pytest.fixture(scope="module")
def log(three: KafkaCluster, admin: ClusterAdmin) -> Sequence[str]:
    """A log with two replicas, both of which every write needs, and data in each partition."""
    made = create_topics(three.bootstrap, replication=2)
    topic = made[-1] + METRICS
    admin.change_settings("topic", topic, {"min.insync.replicas": "2"})
    fill(three.bootstrap, topic, PARTITIONS, PARTITION_BYTES)
    return made


@pytest.fixture
def shell(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capsysbinary, monkeypatch)


def partitions(admin: ClusterAdmin, log: Sequence[str]) -> list[PartitionReplicas]:
    return admin.cluster().of_topics([log[-1] + METRICS])


def copying(admin: ClusterAdmin, log: Sequence[str]) -> bool:
    """Whether a copy runs; asserts that no partition has lost a replica for it."""
    found = partitions(admin, log)
    assert all(len(one.in_sync) >= 2 for one in found)
    return any(one.adding for one in found)


def throttles(shell: Shell, log: Sequence[str]) -> list[dict[str, Any]]:
    """The throttles that `tsdb kafka check` reports."""
    checked = shell.run("kafka", "check", *log, "--replication", 2, *QUICK, "--output", "json")
    return [row for row in checked.json["differences"] if ".replication.throttled." in row["setting"]]


def test_a_killed_apply_is_taken_over_and_ends_at_the_target(
    shell: Shell, three: KafkaCluster, admin: ClusterAdmin, log: Sequence[str], tmp_path: Path
) -> None:
    file, steps = tmp_path / "plan.json", tmp_path / "steps"
    before = partitions(admin, log)
    planned = ("kafka", "plan", *log, "--topic", METRICS, "--drain-rack", "rack-3", *SLOW)
    table = shell.ok(*planned, "--file", file, "--step-files", steps)
    assert "nothing is changed" in table.err
    assert partitions(admin, log) == before
    moved = [json.loads(path.read_text())["partitions"] for path in sorted(steps.glob("step-*.json"))]
    drained = [one.place.partition for one in before if 3 in one.replicas]
    assert sorted(row["partition"] for step in moved for row in step) == drained

    with Apply(log, file) as apply:
        apply.wait_for(lambda: copying(admin, log))
        apply.kill()
    assert copying(admin, log), "the copy ended before the kill"
    seen = shell.ok("kafka", "watch", *log, "--once", "--output", "json").json
    assert (len(seen["reassignments"]), seen["left_bytes"] > 0) == (1, True)
    states = shell.ok("kafka", "apply", file, *log, *QUICK, "--output", "json").json
    assert [row["state"] for row in states["steps"]] == ["running", *["left"] * (len(moved) - 1)]
    other = shell.run(*planned)
    assert (other.code, "reassignments of others run" in other.err) == (1, True)

    with Apply(log, file, "--throttle-mib-s", "50") as apply:
        while apply.runs_for(LOOK_EVERY_S):
            copying(admin, log)
        assert [row["state"] for row in apply.finish()] == ["done"] * len(moved)
    assert all(set(one.replicas) == {1, 2} == one.in_sync for one in partitions(admin, log))
    assert throttles(shell, log) == []
    assert shell.ok(*planned).text == ""
    assert shell.ok("kafka", "watch", *log, "--once").err == "no reassignment runs\n"


def test_a_stopped_apply_leaves_no_throttle_and_no_half_made_move(
    shell: Shell, three: KafkaCluster, admin: ClusterAdmin, log: Sequence[str], tmp_path: Path
) -> None:
    file, before = tmp_path / "plan.json", partitions(admin, log)
    shell.ok("kafka", "plan", *log, "--topic", METRICS, "--add", 3, *SLOW, "--file", file)
    with Apply(log, file) as apply:
        apply.wait_for(lambda: copying(admin, log))
        assert "throttles are removed" in apply.stop()
    wait_until(lambda: not copying(admin, log), SOON_S)
    # Kafka's cancellation keeps the order of the new replicas.
    assert [set(one.replicas) for one in partitions(admin, log)] == [set(one.replicas) for one in before]
    assert throttles(shell, log) == []

    shell.ok("kafka", "plan", *log, "--topic", METRICS, "--add", 3, *QUICK, "--file", file)
    with Apply(log, file) as apply:
        apply.finish()
    found = partitions(admin, log)
    assert sorted(one.leader for one in found if one.leader) == [1, 2, 3]
    assert sorted(broker for one in found for broker in one.replicas) == [1, 1, 2, 2, 3, 3]


def test_throttles_that_a_killed_apply_left_are_reported_and_those_of_others_stay(
    shell: Shell, admin: ClusterAdmin, log: Sequence[str], tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    shell.ok("kafka", "plan", *log, "--topic", METRICS, "--drain", 1, *QUICK, "--file", file)
    rate = "leader.replication.throttled.rate"
    admin.change_settings("broker", "2", {rate: "12345"})
    assert throttles(shell, log) == [
        {"topic": "broker 2", "setting": rate, "got": "12345", "want": "unset while no reassignment runs"}
    ]
    refused = shell.run("kafka", "apply", file, *log, *QUICK, "--execute")
    assert (refused.code, "throttles of others are set (broker 2: " in refused.err) == (1, True)
    admin.change_settings("broker", "2", {rate: None})


def test_a_cluster_under_min_isr_is_refused_by_name(shell: Shell, admin: ClusterAdmin, log: Sequence[str]) -> None:
    topic = log[-1] + METRICS
    admin.change_settings("topic", topic, {"min.insync.replicas": "3"})
    refused = shell.run("kafka", "plan", *log, "--topic", METRICS, "--drain", 1, *QUICK)
    checked = shell.run("kafka", "check", *log, "--replication", 2, *QUICK, "--output", "json")
    admin.change_settings("topic", topic, {"min.insync.replicas": "2"})
    assert (refused.code, f"under min.insync.replicas: {topic}-0 has 2 in sync of 3" in refused.err) == (1, True)
    assert checked.code == 1
    assert sum("it refuses writes" in row["want"] for row in checked.json["differences"]) == PARTITIONS


def test_retention_below_hold_and_outage_and_rebuild_fails_the_check(shell: Shell, log: Sequence[str]) -> None:
    arguments = ("kafka", "check", *log, "--replication", 2, *QUICK, "--output", "json")
    checked = shell.run(*arguments, "--outage", "4d", "--rebuild", "1d")
    assert checked.code == 1
    retention = [row for row in checked.json["differences"] if row["setting"] == "retention.ms"]
    assert retention == [{"topic": METRICS, "setting": "retention.ms", "got": "432000000", "want": "468000000 or more"}]
    assert checked.json["needed"] == {
        "hold_ms": 36_000_000,
        "outage_ms": 345_600_000,
        "rebuild_ms": 86_400_000,
        "retention_ms": 468_000_000,
    }
