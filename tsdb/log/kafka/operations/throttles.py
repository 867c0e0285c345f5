"""Throttles of a step: limits how fast its brokers copy, and for which replicas, by four settings of Kafka.

The rate of a broker counts only for the replicas in the lists of their topics, and only while these are not in sync. So
a throttle slows copies down and never the replicas that writes wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tsdb.log.kafka.operations.admin import ClusterAdmin
from tsdb.log.kafka.operations.plan import Plan
from tsdb.log.kafka.operations.refusals import Refusal
from tsdb.log.kafka.operations.state import Cluster
from tsdb.log.kafka.operations.steps import Step
from tsdb.log.topics import Difference
from tsdb.model.errors import TsdbError

LEADER_LIST = "leader.replication.throttled.replicas"
FOLLOWER_LIST = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LISTS = (LEADER_LIST, FOLLOWER_LIST)
RATES = (LEADER_RATE, FOLLOWER_RATE)


def throttled_lists(step: Step) -> dict[str, dict[str, str]]:
    """The two lists of each topic: each earlier replica as a leader, each new replica as a follower."""
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    for move in step.moves:
        if move.added:
            leaders[move.place.topic] += [f"{move.place.partition}:{broker}" for broker in move.before]
            followers[move.place.topic] += [f"{move.place.partition}:{broker}" for broker in move.added]
    return {
        topic: {LEADER_LIST: ",".join(leaders[topic]), FOLLOWER_LIST: ",".join(followers[topic])} for topic in leaders
    }


def set_throttles(admin: ClusterAdmin, step: Step, rate_bytes_s: int, live: Iterable[int]) -> None:
    """Throttle the copies of a step on its live brokers."""
    rates = dict.fromkeys(RATES, str(rate_bytes_s))
    for topic, lists in throttled_lists(step).items():
        admin.change_settings("topic", topic, lists)
    if any(move.added for move in step.moves):
        for broker in sorted(step.brokers.intersection(live)):
            admin.change_settings("broker", str(broker), rates)


def clear_lists(admin: ClusterAdmin, step: Step) -> None:
    """Remove the lists of a step; the rates stay for the next step."""
    for topic in throttled_lists(step):
        admin.change_settings("topic", topic, dict.fromkeys(LISTS))


def clear_throttles(admin: ClusterAdmin, plan: Plan, live: Iterable[int]) -> list[str]:
    """Remove every throttle that the plan may have set. Tries all, and returns the failures, each with its object."""
    topics = sorted({move.place.topic for move in plan.moves})
    changes = [("topic", topic, dict.fromkeys(LISTS)) for topic in topics]
    changes += [("broker", str(broker), dict.fromkeys(RATES)) for broker in sorted(plan.brokers.intersection(live))]
    failures = []
    for kind, name, values in changes:
        try:
            admin.change_settings(kind, name, values)
        except TsdbError as error:
            failures.append(error.message)
    return failures


def foreign_throttles(admin: ClusterAdmin, plan: Plan, live: Iterable[int]) -> list[Refusal]:
    """Throttles on the plan's topics and brokers that no run of this plan set: removing them is not its right.

    A list of the plan on one of its topics shows that the rates are of a run that was killed.
    """
    own_lists = {
        (topic, value)
        for step in plan.steps
        for topic, lists in throttled_lists(step).items()
        for value in lists.values()
    }
    topics = sorted({move.place.topic for move in plan.moves})
    brokers = [str(broker) for broker in sorted(plan.brokers.intersection(live))]
    lists = _settings(admin, "topic", topics, LISTS)
    foreign = [one for one in lists if (one.name, one.value) not in own_lists]
    if foreign or not lists:
        foreign += _settings(admin, "broker", brokers, RATES)
    if not foreign:
        return []
    names = "; ".join(f"{one.kind} {one.name}: {one.key}={one.value}" for one in foreign)
    text = f"throttles of others are set ({names}); remove them with kafka-configs.sh first"
    return [Refusal("foreign_throttle", text)]


@dataclass(frozen=True, slots=True)
class _Setting:
    kind: str
    name: str
    key: str
    value: str


def _settings(admin: ClusterAdmin, kind: str, names: Sequence[str], keys: Sequence[str]) -> list[_Setting]:
    found = admin.settings(kind, names, keys)
    return [_Setting(kind, name, key, value) for name, values in found.items() for key, value in values.items()]


def left_throttles(admin: ClusterAdmin, cluster: Cluster, topics: Iterable[str]) -> list[Difference]:
    """Throttles of topics and brokers while no reassignment runs: a killed command left them."""
    if any(one.reassigning for one in cluster.partitions.values()):
        return []
    names = sorted(set(topics) & set(cluster.topics))
    brokers = [str(broker) for broker in sorted(cluster.brokers)]
    found = [*_settings(admin, "topic", names, LISTS), *_settings(admin, "broker", brokers, RATES)]
    return [
        Difference(
            one.name if one.kind == "topic" else f"broker {one.name}",
            one.key,
            one.value,
            "unset while no reassignment runs",
        )
        for one in found
    ]
