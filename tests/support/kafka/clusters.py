"""Clusters as values for the planner's tests, and the effect of a plan on them by Kafka's rules (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tsdb.log.kafka.operations.state import Broker, Cluster, PartitionId, PartitionReplicas, Replicas, Topic
from tsdb.log.kafka.operations.steps import Step

MIB = 1 << 20
TOPIC = "metrics"


def cluster_of(
    replicas: Mapping[str, Sequence[Replicas]] | Sequence[Replicas],
    *,
    live: Iterable[int] = (1, 2, 3),
    racks: Mapping[int, str] | None = None,
    min_isr: int = 1,
    size_bytes: int = 10 * MIB,
    rate_bytes_s: float = 0.0,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    usable_bytes: int | None = None,
) -> Cluster:
    """A cluster with these replicas for each partition, by topic. Live replicas are in sync."""
    topics = replicas if isinstance(replicas, Mapping) else {TOPIC: replicas}
    live = set(live)
    partitions = {}
    for topic, rows in topics.items():
        for number, brokers in enumerate(rows):
            place = PartitionId(topic, number)
            in_sync = frozenset(brokers) & live
            leader = next((broker for broker in brokers if broker in in_sync), None)
            partitions[place] = PartitionReplicas(place, tuple(brokers), leader, in_sync, size_bytes)
    return Cluster(
        "c1",
        {broker: Broker(broker, (racks or {}).get(broker), usable_bytes) for broker in live},
        {topic: Topic(topic, min_isr, retention_ms, retention_bytes) for topic in topics},
        partitions,
        dict.fromkeys(partitions, rate_bytes_s),
    )


def during(cluster: Cluster, step: Step) -> Cluster:
    """The cluster while a step's new replicas copy: all old and new replicas, and the old ones in sync."""
    return _changed(
        cluster,
        {
            move.place: replace(
                cluster.partitions[move.place],
                replicas=(*move.after, *(broker for broker in move.before if broker not in move.after)),
                adding=move.added,
                removing=tuple(broker for broker in move.before if broker not in move.after),
            )
            for move in step.moves
        },
    )


def after(cluster: Cluster, step: Step) -> Cluster:
    """The cluster after a step: Kafka waits for the new replicas only, so an old one may still be out of sync."""
    changed = {}
    for move in step.moves:
        one = cluster.partitions[move.place]
        in_sync = (one.in_sync | set(move.added)) & set(move.after)
        leader = move.after[0] if move.after[0] in in_sync else min(in_sync, default=None)
        changed[move.place] = replace(
            one, replicas=move.after, adding=(), removing=(), in_sync=frozenset(in_sync), leader=leader
        )
    return _changed(cluster, changed)


def _changed(cluster: Cluster, partitions: Mapping[PartitionId, PartitionReplicas]) -> Cluster:
    return replace(cluster, partitions={**cluster.partitions, **partitions})
