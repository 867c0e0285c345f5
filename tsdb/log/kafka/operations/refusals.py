"""Refusals of plans: each names the object, the limit and the next step, before anything changes. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tsdb.log.kafka.operations.state import Cluster, Topic
from tsdb.log.kafka.operations.steps import Move, Step, flows
from tsdb.log.kafka.operations.target import Wish
from tsdb.model.errors import InvalidRequest

SHOWN_MAX = 5  # Partitions that one message names.
DISK_RESERVE = 0.1  # Share of a broker's free bytes that a plan leaves free, because producers write meanwhile.


class PlanRefused(InvalidRequest):
    """A plan that must not run. reasons: a code for each refusal; the message has all of them."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(refusal.text for refusal in refusals), reason=refusals[0].reason)
        self.reasons = tuple(refusal.reason for refusal in refusals)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason against a plan."""

    reason: str
    text: str


def check_wish(cluster: Cluster, wish: Wish) -> None:
    """Raises PlanRefused for unknown names, too few brokers, or a cluster that cannot be changed now."""
    _refuse([*_unknown_names(cluster, wish), *cluster_refusals(cluster)])
    _refuse(_too_few_brokers(cluster, wish))


def check_plan(cluster: Cluster, steps: Sequence[Step], throttle_bytes_s: float) -> None:
    """Raises PlanRefused for a throttle below producers, steps that outlast retention, and full disks."""
    _refuse(
        [
            *_slow_throttle(cluster, steps, throttle_bytes_s),
            *_outlasted_retention(cluster, steps),
            *_full_disks(cluster, steps),
        ]
    )


def cluster_refusals(cluster: Cluster, own: Iterable[Move] = ()) -> list[Refusal]:
    """Reasons of the cluster against any change now. own: moves that may run already, of the plan to continue."""
    found: list[Refusal] = []
    if thin := cluster.under_min_isr():
        names = [
            f"{one.place} has {len(one.in_sync)} in sync of {cluster.topics[one.place.topic].min_isr}" for one in thin
        ]
        text = f"under min.insync.replicas: {_some(names)}; bring the brokers of these replicas back first"
        found.append(Refusal("under_min_isr", text))
    targets = {move.place: set(move.after) for move in own}
    foreign = [
        str(one.place)
        for one in cluster.partitions.values()
        if one.reassigning and targets.get(one.place) != set(one.target)
    ]
    if foreign:
        text = f"reassignments of others run: {_some(sorted(foreign))}; wait for their end (`tsdb kafka watch`)"
        found.append(Refusal("reassignment_running", text))
    return found


def _unknown_names(cluster: Cluster, wish: Wish) -> list[Refusal]:
    found = [
        Refusal("unknown_topic", f"topic {topic} does not exist; `tsdb topics check` lists the topics of a log")
        for topic in sorted(set(wish.topics) - set(cluster.topics))
    ]
    known = {*cluster.brokers, *(broker for one in cluster.partitions.values() for broker in one.replicas)}
    live = ", ".join(map(str, sorted(cluster.brokers)))
    found += [
        Refusal("unknown_broker", f"broker {broker} to drain does not exist; live brokers: {live}")
        for broker in sorted(wish.drain - known)
    ]
    found += [
        Refusal("unknown_broker", f"broker {broker} to add is not alive; live brokers: {live}")
        for broker in sorted(wish.add - set(cluster.brokers))
    ]
    racks = ", ".join(sorted(cluster.racks)) or "no broker has one (broker.rack)"
    found += [
        Refusal("unknown_rack", f"rack {rack} does not exist; racks: {racks}")
        for rack in sorted(wish.drain_racks - cluster.racks)
    ]
    found += [
        Refusal("contradiction", f"broker {broker} is both drained and added; choose one")
        for broker in sorted(wish.add & wish.drained(cluster))
    ]
    return found


def _too_few_brokers(cluster: Cluster, wish: Wish) -> list[Refusal]:
    allowed, drained = wish.allowed(cluster), wish.drained(cluster)
    found = []
    for topic in sorted(set(wish.topics)):
        for one in cluster.of_topics([topic]):
            dead = set(one.replicas) - set(cluster.brokers) - drained
            if len(allowed) + len(dead) < len(one.target):
                text = (
                    f"topic {topic} has {len(one.target)} replicas, but only brokers {sorted(allowed)} are left; "
                    "drain fewer brokers, or start new ones first"
                )
                found.append(Refusal("too_few_brokers", text))
                break
    return found


def _slow_throttle(cluster: Cluster, steps: Sequence[Step], throttle_bytes_s: float) -> list[Refusal]:
    traffic = [flow for step in steps for flow in flows(step.moves, cluster)]
    worst = max(traffic, key=lambda flow: flow.write_bytes_s, default=None)
    if worst is None or worst.write_bytes_s < throttle_bytes_s:
        return []
    text = (
        f"throttle {mib(throttle_bytes_s)}/s is not above the {mib(worst.write_bytes_s)}/s that producers write to the "
        f"partitions which broker {worst.broker_id} would {worst.direction}: copies would never catch up; use at least "
        "twice that rate, or fewer partitions at once"
    )
    return [Refusal("throttle_too_low", text)]


def _outlasted_retention(cluster: Cluster, steps: Sequence[Step]) -> list[Refusal]:
    seconds = sum(step.seconds for step in steps)
    if math.isinf(seconds):
        return []  # The throttle was refused before.
    found = []
    for name in sorted({move.place.topic for step in steps for move in step.moves if move.added}):
        retention_s = retained_seconds(cluster, cluster.topics[name])
        if seconds >= retention_s:
            text = (
                f"the plan takes {duration(seconds)}, but topic {name} keeps records for {duration(retention_s)}: the "
                "copied records would be deleted before its end; raise the throttle, or plan fewer topics"
            )
            found.append(Refusal("outlasts_retention", text))
    return found


def retained_seconds(cluster: Cluster, topic: Topic) -> float:
    """How long the topic keeps a record, by time and, at the measured rate, by bytes. Infinite without a limit."""
    by_time = math.inf if topic.retention_ms is None else topic.retention_ms / 1000
    rate = max((cluster.write_rates.get(one.place, 0.0) for one in cluster.of_topics([topic.name])), default=0.0)
    by_bytes = topic.retention_bytes / rate if topic.retention_bytes is not None and rate > 0 else math.inf
    return min(by_time, by_bytes)


def _full_disks(cluster: Cluster, steps: Sequence[Step]) -> list[Refusal]:
    arriving: Counter[int] = Counter()
    for step in steps:
        for move in step.moves:
            for broker in move.added:
                arriving[broker] += move.size_bytes
    found = []
    for broker in sorted(arriving):
        usable = cluster.brokers[broker].usable_bytes
        if usable is not None and arriving[broker] > usable * (1 - DISK_RESERVE):
            text = (
                f"broker {broker} would receive {mib(arriving[broker])}, but its disks have {mib(usable)} free, and "
                f"{DISK_RESERVE:.0%} of that stay free; add a disk or a broker, or plan fewer topics"
            )
            found.append(Refusal("disk_full", text))
    return found


def mib(size: float) -> str:
    """Bytes in MiB, for messages."""
    return f"{size / (1 << 20):,.3g} MiB"


def duration(seconds: float) -> str:
    """A time in words of two units at most: 45 s, 12 min, 3 h 20 min, 5 d."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    counts = (("d", minutes // 1440), ("h", minutes // 60 % 24), ("min", minutes % 60))
    words = [f"{count} {unit}" for unit, count in counts if count]
    return " ".join(words[:2])


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more


def _refuse(refusals: Sequence[Refusal]) -> None:
    if refusals:
        raise PlanRefused(refusals)
