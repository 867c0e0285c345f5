"""Plans of random clusters and wishes: every step keeps replicas and min ISR, and the end is the target."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.kafka.clusters import MIB, after, cluster_of, during
from tsdb.log.kafka.operations.plan import Plan, make_plan
from tsdb.log.kafka.operations.refusals import PlanRefused
from tsdb.log.kafka.operations.state import Cluster
from tsdb.log.kafka.operations.target import Wish

EXAMPLES = 150
BROKERS = range(1, 8)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Two topics over up to seven brokers, some of them dead, with or without racks. Random replicas are in sync."""
    brokers = draw(st.sets(st.sampled_from(BROKERS), min_size=1))
    racks = {broker: draw(st.sampled_from("abc")) for broker in brokers} if draw(st.booleans()) else None
    topics = {}
    for topic in ("metrics", "series"):
        replication = draw(st.integers(1, min(3, len(brokers))))
        orders = draw(st.lists(st.permutations(sorted(brokers)), min_size=1, max_size=8))
        topics[topic] = [tuple(order[:replication]) for order in orders]
    live = draw(st.sets(st.sampled_from(BROKERS))) | {min(brokers)}
    made = cluster_of(topics, live=live, racks=racks)
    partitions = {}
    for place, one in made.partitions.items():
        in_sync = draw(st.sets(st.sampled_from(sorted(one.in_sync)))) if one.in_sync else set()
        size = draw(st.integers(0, 50 * MIB))
        leader = min(in_sync, default=None)
        partitions[place] = replace(one, in_sync=frozenset(in_sync), size_bytes=size, leader=leader)
    least = {topic: min(len(one.in_sync) for one in made.of_topics([topic])) for topic in topics}
    return replace(
        made,
        partitions=partitions,
        topics={topic: replace(one, min_isr=draw(st.integers(0, least[topic]))) for topic, one in made.topics.items()},
    )


@st.composite
def wishes(draw: st.DrawFn) -> Wish:
    some = st.frozensets(st.sampled_from(BROKERS), max_size=2)
    return Wish(
        draw(st.sampled_from([["metrics"], ["metrics", "series"]])),
        drain=draw(some),
        drain_racks=draw(st.frozensets(st.sampled_from("abc"), max_size=1)),
        add=draw(some),
        spread=draw(st.sampled_from([None, "leaders", "replicas"])),
    )


def planned(cluster: Cluster, wish: Wish, at_once: int) -> Plan | None:
    """The plan, or None for a refused one."""
    try:
        return make_plan(cluster, wish, MIB, at_once)
    except PlanRefused:
        return None


@settings(max_examples=examples(EXAMPLES))
@given(clusters(), wishes(), st.integers(1, 5))
def test_no_step_drops_below_min_isr_or_changes_the_number_of_replicas(
    cluster: Cluster, wish: Wish, at_once: int
) -> None:
    plan = planned(cluster, wish, at_once)
    if plan is None:
        return
    states = [cluster]
    for step in plan.steps:
        assert sum(bool(move.added) for move in step.moves) <= at_once
        states += [during(states[-1], step), after(states[-1], step)]
    for before, now in pairwise(states):
        assert now.under_min_isr() == []
        for place, one in now.partitions.items():
            assert len(one.target) == len(set(one.target)) == len(cluster.partitions[place].replicas)
            assert len(one.in_sync) >= len(before.partitions[place].in_sync)


@settings(max_examples=examples(EXAMPLES))
@given(clusters(), wishes(), st.integers(1, 5))
def test_the_end_of_a_plan_is_its_target(cluster: Cluster, wish: Wish, at_once: int) -> None:
    plan = planned(cluster, wish, at_once)
    if plan is None:
        return
    end = cluster
    for step in plan.steps:
        end = after(end, step)
    drained, allowed = wish.drained(cluster), wish.allowed(cluster)
    for topic in cluster.topics:
        partitions = end.of_topics([topic])
        if topic not in wish.topics:
            assert partitions == cluster.of_topics([topic])
            continue
        for one in partitions:
            present = cluster.partitions[one.place].replicas
            assert drained.isdisjoint(one.replicas)
            assert allowed.issuperset(set(one.replicas) - set(present))
            racks = [{cluster.rack(broker) for broker in brokers} for brokers in (one.replicas, present)]
            if not drained:
                assert len(racks[0]) >= len(racks[1])
        if wish.spread or wish.add:
            assert_leaders_are_even([one.replicas for one in partitions])
        if (wish.spread == "replicas" or wish.add) and not cluster.racks:
            counts = Counter(dict.fromkeys(allowed, 0))
            counts.update(broker for one in partitions for broker in one.replicas if broker in allowed)
            assert max(counts.values()) - min(counts.values()) <= 1
    assert planned(end, wish, at_once) in (None, Plan("c1", MIB, ())), "a second plan finds nothing left to move"


def assert_leaders_are_even(replicas: list[tuple[int, ...]]) -> None:
    """No smaller largest number of leaderships exists: tried by giving each broker one less (Hall's theorem)."""
    most = max(Counter(brokers[0] for brokers in replicas).values())
    assert not assignable(replicas, most - 1)


def assignable(replicas: list[tuple[int, ...]], most: int) -> bool:
    """Whether leaders exist with at most `most` partitions for each broker: by augmenting paths over seats."""
    seats: dict[tuple[int, int], int] = {}

    def seat(partition: int, tried: set[tuple[int, int]]) -> bool:
        for broker in replicas[partition]:
            for number in range(most):
                place = (broker, number)
                if place in tried:
                    continue
                tried.add(place)
                if place not in seats or seat(seats[place], tried):
                    seats[place] = partition
                    return True
        return False

    return all(seat(partition, set()) for partition in range(len(replicas)))
