"""Attacks the promise that an upgrade costs no read and no write: every role of a two-zone installation changes its
release under load, in the order that the manifests keep, and back again.

Pods are real processes with the commands, probes and times of deploy/kubernetes; Kafka and Cassandra are real. The last
release runs beside this one in both directions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.cassandra import CassandraNode
from stack.kafka import KafkaCluster
from support.drills.writers import Writers
from support.rollout.cluster import Cluster
from support.rollout.load import Known, Reads
from support.rollout.releases import Release, last_release, this_release
from tsdb.client import connect

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

# Pause of every reader and writer between calls, because two cores start up to six processes at the same time.
REST_S = 0.25
ANSWERS = 20  # Reads of each kind, before and after each rollout.
HOLD_EXTRA_MS = 210_000  # With the least hold 5 min, for rollouts of minutes, as production's 10 h are for hours.
READERS = {"chunker": ("loader", "querier"), "gateway": ("store", "loader", "chunker")}
SETTINGS = """\
history = "cassandra://{node}/rollout"
hold_extra_ms = {hold_extra_ms}
log = "kafka://{bootstrap}"
stores = "store:7410"
time_set = "demo"
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with KafkaCluster() as kafka, CassandraNode() as node:
        settings = SETTINGS.format(
            node=f"{node.host}:{node.port}", bootstrap=kafka.bootstrap, hold_extra_ms=HOLD_EXTRA_MS
        )
        with Cluster(tmp_path, settings) as running:
            yield running


def test_a_rollout_to_this_release_and_back_fails_no_read_and_no_write(cluster: Cluster, tmp_path: Path) -> None:
    old, new = last_release(tmp_path, "0.1.0"), this_release(tmp_path, "0.2.0")
    cluster.install(old)
    gateway, querier = cluster.address("gateway", 7410), cluster.address("querier", 7410)
    known = Known(time.time_ns() // 1_000_000)
    with connect(gateway) as client:
        known.write(client)
    with (
        Writers(gateway, rest_s=REST_S) as writers,
        Reads(querier, cluster.address("querier", 7411), gateway, known, rest_s=REST_S) as reads,
    ):
        reads.wait_for_answers(ANSWERS)
        _roll(cluster, new, reads, writers)
        _check_order(cluster, old, new)
        reads.wait_for_answers(ANSWERS)
        _roll(cluster, old, reads, writers)
        reads.wait_for_answers(ANSWERS)
    assert (reads.failed, writers.errors, cluster.faults()) == ([], [], [])
    with connect(querier) as client:
        print(f"{writers.judge(client)} acknowledged samples read back")


def _check_order(cluster: Cluster, old: Release, new: Release) -> None:
    """No writer of the new release began while one of its readers of the old one took calls."""
    for writer, readers in READERS.items():
        for reader in readers:
            assert cluster.began(writer, new) >= cluster.drained(reader, old), (writer, reader)


def _roll(cluster: Cluster, release: Release, reads: Reads, writers: Writers) -> None:
    begin, oks = time.monotonic(), writers.oks
    cluster.roll(release)
    kinds = ", ".join(f"{one.answered} {kind} (slowest {one.slowest_s:.2f} s)" for kind, one in reads.outcomes.items())
    print(
        f"rollout to {release.version}: {time.monotonic() - begin:.0f} s; {writers.oks - oks} writes, "
        f"{len(writers.errors)} failed, slowest {writers.slowest_s:.2f} s; reads so far: {kinds}; "
        f"{len(reads.failed)} failed"
    )
    for kind, one in reads.outcomes.items():
        for text in (*one.failed, *one.slow):
            print(f"  {kind} {text}")
    assert {pod.release for pod in cluster.pods()} == {release}
