"""A plan that cannot be right is refused by name, with the limit and the next step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.kafka.clusters import MIB, TOPIC, cluster_of
from tsdb.log.kafka.operations.plan import make_plan
from tsdb.log.kafka.operations.refusals import PlanRefused, duration, retained_seconds
from tsdb.log.kafka.operations.state import Cluster, PartitionId
from tsdb.log.kafka.operations.target import Wish

THREE = [(1, 2), (2, 3), (3, 1)]


def plan(cluster: Cluster, throttle_bytes_s: int = MIB, **wish: Any) -> None:
    make_plan(cluster, Wish(**{"topics": [TOPIC], **wish}), throttle_bytes_s, 2)


def ids(*brokers: int) -> frozenset[int]:
    return frozenset(brokers)


@pytest.mark.parametrize(
    ("wish", "reason", "text"),
    [
        ({"topics": ["nope"], "drain": ids(1)}, "unknown_topic", "topic nope does not exist"),
        ({"drain": ids(9)}, "unknown_broker", "broker 9 to drain does not exist; live brokers: 1, 2, 3"),
        ({"add": ids(9)}, "unknown_broker", "broker 9 to add is not alive; live brokers: 1, 2, 3"),
        ({"drain_racks": frozenset({"x"})}, "unknown_rack", "rack x does not exist; racks: a, b, c"),
        ({"drain": ids(1), "add": ids(1)}, "contradiction", "broker 1 is both drained and added"),
        ({"drain": ids(1, 2)}, "too_few_brokers", "topic metrics has 2 replicas, but only brokers [3] are left"),
    ],
)
def test_names_that_do_not_fit_the_cluster_are_refused(wish: dict[str, Any], reason: str, text: str) -> None:
    with pytest.raises(PlanRefused, match="^" + text.replace("[", r"\[").replace("]", r"\]")) as refused:
        plan(cluster_of(THREE, racks={1: "a", 2: "b", 3: "c"}), **wish)
    assert refused.value.reason == reason


def test_every_wrong_name_is_in_one_message() -> None:
    with pytest.raises(PlanRefused) as refused:
        plan(cluster_of(THREE), topics=["nope"], drain=ids(8), drain_racks=frozenset({"x"}))
    assert refused.value.reasons == ("unknown_topic", "unknown_broker", "unknown_rack")


def test_a_cluster_under_min_isr_is_refused_also_for_a_topic_that_does_not_move() -> None:
    cluster = cluster_of({TOPIC: THREE, "other": [(1, 4)]}, live=(1, 2, 3))
    thin = replace(cluster, topics={**cluster.topics, "other": replace(cluster.topics["other"], min_isr=2)})
    with pytest.raises(PlanRefused, match=r"other-0 has 1 in sync of 2; bring the brokers .* back") as refused:
        plan(thin, drain=ids(1))
    assert refused.value.reason == "under_min_isr"


def test_a_dead_broker_may_be_drained_while_min_isr_holds() -> None:
    plan(cluster_of([(1, 4), (4, 2)], live=(1, 2, 3)), drain=ids(4))


def test_a_running_reassignment_of_others_is_refused() -> None:
    cluster = cluster_of(THREE)
    place = PartitionId(TOPIC, 2)
    moving = replace(cluster.partitions[place], replicas=(2, 3, 1), adding=(2,), removing=(3,))
    with pytest.raises(PlanRefused, match="reassignments of others run: metrics-2") as refused:
        plan(replace(cluster, partitions={**cluster.partitions, place: moving}), drain=ids(1))
    assert refused.value.reason == "reassignment_running"


def test_a_throttle_below_what_producers_write_is_refused() -> None:
    with pytest.raises(PlanRefused, match=r"throttle 1 MiB/s is not above the 2 MiB/s that producers write") as refused:
        plan(cluster_of([(1, 2)], rate_bytes_s=2 * MIB), drain=ids(2))
    assert refused.value.reason == "throttle_too_low"
    plan(cluster_of([(1, 2)], rate_bytes_s=2 * MIB), 3 * MIB, drain=ids(2))
    plan(cluster_of([(1, 2)], rate_bytes_s=2 * MIB), 1, spread="leaders")  # It copies nothing.


def test_producers_add_up_over_the_partitions_that_a_broker_copies_at_once() -> None:
    cluster = cluster_of([(1, 2), (1, 2)], rate_bytes_s=2 * MIB)
    with pytest.raises(PlanRefused, match="the 4 MiB/s"):
        plan(cluster, 3 * MIB, drain=ids(2))


@pytest.mark.parametrize(
    "limits", [{"retention_ms": 9_000}, {"retention_bytes": 900, "rate_bytes_s": 100.0}], ids=("time", "bytes")
)
def test_a_plan_that_outlasts_retention_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(PlanRefused, match=r"takes 10 s, but topic metrics keeps records for 9 s") as refused:
        plan(cluster_of([(1, 2)], **limits), drain=ids(2))
    assert refused.value.reason == "outlasts_retention"


def test_disks_keep_a_reserve() -> None:
    with pytest.raises(PlanRefused, match="broker 3 would receive 10 MiB, but its disks have 11 MiB free") as refused:
        plan(cluster_of([(1, 2)], usable_bytes=11 * MIB), drain=ids(2))
    assert refused.value.reason == "disk_full"
    plan(cluster_of([(1, 2)], usable_bytes=12 * MIB), drain=ids(2))


def test_a_topic_without_limits_keeps_records_for_ever() -> None:
    cluster = cluster_of(THREE, rate_bytes_s=1.0)
    assert retained_seconds(cluster, cluster.topics[TOPIC]) == float("inf")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (119, "119 s"), (600, "10 min"), (12_000, "3 h 20 min"), (432_000, "5 d")]
)
def test_a_time_is_shown_in_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text
