"""A target moves as little as it can, keeps racks, and evens out replicas and leaders."""

from __future__ import annotations

from collections import Counter

from support.kafka.clusters import TOPIC, cluster_of
from tsdb.log.kafka.operations.state import PartitionId, Replicas
from tsdb.log.kafka.operations.target import Wish, target_replicas


def target(*args: object, **wish: object) -> list[Replicas]:
    """Replicas at the end of the topic's partitions, in order."""
    (cluster,) = args
    found = target_replicas(cluster, Wish([TOPIC], **wish))  # type: ignore[arg-type]  # as the caller names them
    return [found[place] for place in sorted(found)]


def test_a_drained_broker_gives_each_replica_to_one_other_and_nothing_else_moves() -> None:
    cluster = cluster_of([(1, 2), (2, 3), (3, 1)], live=(1, 2, 3, 4))
    assert target(cluster, drain=frozenset({3})) == [(1, 2), (2, 4), (4, 1)]


def test_a_drained_dead_broker_is_replaced() -> None:
    cluster = cluster_of([(1, 3), (3, 2)], live=(1, 2))
    assert target(cluster, drain=frozenset({3})) == [(1, 2), (1, 2)]


def test_replicas_of_a_drained_broker_go_to_a_rack_that_the_partition_lacks() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "a", 5: "c"}
    cluster = cluster_of([(1, 2, 3)], live=racks, racks=racks)
    assert target(cluster, drain=frozenset({3})) == [(1, 2, 5)]


def test_a_drained_rack_is_empty_at_the_end() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "a"}
    cluster = cluster_of([(1, 2), (2, 3)], live=racks, racks=racks)
    assert all(3 not in replicas for replicas in target(cluster, drain_racks=frozenset({"c"})))


def test_an_added_broker_gets_an_even_share_and_others_keep_theirs() -> None:
    cluster = cluster_of([(1, 2), (2, 3), (3, 1)] * 4, live=(1, 2, 3, 4, 5))
    replicas = target(cluster, add=frozenset({4}))
    counts = Counter(broker for brokers in replicas for broker in brokers)
    assert counts == {1: 6, 2: 6, 3: 6, 4: 6}  # Broker 5 is empty and was not named.
    moved = sum(4 in brokers for brokers in replicas)
    assert moved == 6, "no other replica moves"


def test_an_even_spread_uses_all_live_brokers() -> None:
    cluster = cluster_of([(1, 2)] * 6, live=(1, 2, 3, 4))
    counts = Counter(broker for brokers in target(cluster, spread="replicas") for broker in brokers)
    assert counts == {1: 3, 2: 3, 3: 3, 4: 3}


def test_leaders_are_evened_out_along_paths_and_no_replica_moves() -> None:
    # Brokers 1 and 2 lead two and one, 3 and 4 none. Only broker 2 shares partitions with them.
    cluster = cluster_of([(1, 2), (1, 2), (1, 2), (2, 3), (2, 3)])
    replicas = target(cluster, spread="leaders")
    assert [set(brokers) for brokers in replicas] == [{1, 2}, {1, 2}, {1, 2}, {2, 3}, {2, 3}]
    assert sorted(Counter(brokers[0] for brokers in replicas).values()) == [1, 2, 2]


def test_a_balanced_cluster_is_left_alone() -> None:
    replicas = [(1, 2), (2, 3), (3, 1)]
    assert target(cluster_of(replicas), spread="replicas") == replicas


def test_replicas_that_share_a_rack_move_to_a_free_one() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    cluster = cluster_of([(1, 2)], live=racks, racks=racks)
    (replicas,) = target(cluster, spread="replicas")
    assert {racks[broker] for broker in replicas} == {"a", "b"}


def test_topics_that_were_not_chosen_stay() -> None:
    cluster = cluster_of({TOPIC: [(1, 2)], "other": [(1, 2)]})
    found = target_replicas(cluster, Wish([TOPIC], drain=frozenset({1})))
    assert set(found) == {PartitionId(TOPIC, 0)}
