"""Health of topics: each fault is one difference with its limit, and a healthy cluster has none."""

from __future__ import annotations

from dataclasses import replace

from support.kafka.clusters import MIB, TOPIC, cluster_of
from tsdb.log.kafka.operations.health import Needs, health
from tsdb.log.kafka.operations.state import Cluster
from tsdb.log.topics import Difference

HOUR_MS = 3_600_000
NEEDS = Needs(10 * HOUR_MS, 48 * HOUR_MS, 24 * HOUR_MS)
REPLICAS = [(1, 2, 3), (2, 3, 1)]


def found(cluster: Cluster, needs: Needs = NEEDS) -> list[Difference]:
    return health(cluster, sorted(cluster.topics), TOPIC, needs)


def test_needed_retention_is_hold_and_outage_and_rebuild() -> None:
    assert NEEDS.retention_ms == 82 * HOUR_MS


def test_a_healthy_cluster_has_no_difference() -> None:
    assert found(cluster_of(REPLICAS, min_isr=2, retention_ms=120 * HOUR_MS, usable_bytes=MIB)) == []


def test_replicas_out_of_sync_are_named_and_writes_that_are_refused() -> None:
    lagging, refusing = found(cluster_of([(1, 2, 3), (1, 4, 5)], live=(1, 2), min_isr=2))
    assert str(lagging) == "topic metrics: partition 0: replicas in sync is 2, must be 3"
    assert str(refusing).startswith("topic metrics: partition 1: replicas in sync is 1, must be 2 or more")


def test_min_isr_equal_to_the_replicas_stops_writes_with_one_broker() -> None:
    (one,) = found(cluster_of(REPLICAS, min_isr=3))
    assert (one.setting, one.got) == ("min.insync.replicas", "3")
    assert found(cluster_of([(1,), (2,)], min_isr=1)) == []  # A single replica is what `topics check` judges.


def test_bytes_kept_are_judged_at_the_measured_rate() -> None:
    # 100 bytes/s for 82 h are 29,520,000 bytes.
    assert found(cluster_of(REPLICAS, rate_bytes_s=100.0, retention_bytes=29_520_000)) == []
    (one,) = found(cluster_of(REPLICAS, rate_bytes_s=100.0, retention_bytes=29_519_999))
    assert (one.setting, one.got) == ("retention.bytes", "29519999")
    assert one.want.startswith("-1, or 29520000 or more: 3 d 10 h at the measured")


def test_disks_must_hold_what_retention_will_keep() -> None:
    # Each broker has 2 replicas with 10 MiB; at 1 MiB/s an hour keeps 3600 MiB in each.
    cluster = cluster_of(REPLICAS, rate_bytes_s=float(MIB), retention_ms=HOUR_MS, usable_bytes=7_180 * MIB)
    assert [one.setting for one in found(cluster)] == [f"free disk of broker {broker}" for broker in (1, 2, 3)]
    brokers = {broker: replace(one, usable_bytes=8_000 * MIB) for broker, one in cluster.brokers.items()}
    assert found(replace(cluster, brokers=brokers)) == []


def test_another_topic_is_judged_by_its_replicas_alone() -> None:
    cluster = cluster_of({"series": REPLICAS}, rate_bytes_s=float(MIB), retention_bytes=1, usable_bytes=0)
    assert found(cluster) == []
