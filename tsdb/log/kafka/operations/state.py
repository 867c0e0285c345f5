"""State of a Kafka cluster: describes brokers, topics, partitions with their sizes, and running reassignments. Pure
values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Replicas = tuple[int, ...]  # Broker ids; the first is the preferred leader.


class PartitionId(NamedTuple):
    """A partition by the name of its topic in Kafka, prefix included."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A live broker. rack: None without `broker.rack`. usable_bytes: free bytes on its disks; None when it does not
    report them."""

    broker_id: int
    rack: str | None = None
    usable_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """Settings of a topic. retention_ms, retention_bytes (of each partition): None means no limit."""

    name: str
    min_isr: int = 1
    retention_ms: int | None = None
    retention_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """Present state of a partition. leader: None while the partition has no leader. size_bytes: the size of the
    leader's replica. adding, removing: the change of a running reassignment, whose replicas are the union of old and
    new ones.
    """

    place: PartitionId
    replicas: Replicas
    leader: int | None
    in_sync: frozenset[int]
    size_bytes: int = 0
    adding: Replicas = ()
    removing: Replicas = ()

    @property
    def target(self) -> Replicas:
        """Replicas once a running reassignment is complete."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster at one moment. write_rates: bytes/s that producers add to each partition; 0 for one without a rate."""

    cluster_id: str
    brokers: Mapping[int, Broker]
    topics: Mapping[str, Topic]
    partitions: Mapping[PartitionId, PartitionReplicas]
    write_rates: Mapping[PartitionId, float]

    @property
    def racks(self) -> set[str]:
        """Racks of the live brokers."""
        return {broker.rack for broker in self.brokers.values() if broker.rack is not None}

    def rack(self, broker_id: int) -> str | None:
        """Rack of a broker; also None for an unknown broker."""
        broker = self.brokers.get(broker_id)
        return broker.rack if broker else None

    def of_topics(self, topics: Iterable[str]) -> list[PartitionReplicas]:
        """Partitions of these topics, ascending."""
        chosen = set(topics)
        return [self.partitions[place] for place in sorted(self.partitions) if place.topic in chosen]

    def under_min_isr(self) -> list[PartitionReplicas]:
        """Partitions with fewer replicas in sync than `min.insync.replicas`, ascending: they refuse writes."""
        return [
            self.partitions[place]
            for place in sorted(self.partitions)
            if len(self.partitions[place].in_sync) < self.topics[place.topic].min_isr
        ]
