"""Progress of reassignments: bytes left, the rate between two looks, and the time left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tsdb.log.kafka.operations.admin import ClusterAdmin, Sizes
from tsdb.log.kafka.operations.state import Cluster, PartitionId, PartitionReplicas, Replicas


@dataclass(frozen=True, slots=True)
class Copy:
    """A running reassignment. left_bytes: bytes that its new replicas still have to copy."""

    place: PartitionId
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    size_bytes: int
    left_bytes: int


@dataclass(frozen=True, slots=True)
class Look:
    """All running reassignments at one moment of monotonic time."""

    at_s: float
    copies: Sequence[Copy]

    @property
    def left_bytes(self) -> int:
        return sum(copy.left_bytes for copy in self.copies)

    def rate_since(self, earlier: Look | None) -> float | None:
        """Bytes/s by which less is left; None for the first look. Below 0 when producers are faster."""
        if earlier is None or self.at_s <= earlier.at_s:
            return None
        return (earlier.left_bytes - self.left_bytes) / (self.at_s - earlier.at_s)

    def seconds_left(self, earlier: Look | None) -> float | None:
        """Time left at the rate since an earlier look; None when that look shows no progress."""
        rate = self.rate_since(earlier)
        return self.left_bytes / rate if rate and rate > 0 else None


def look(admin: ClusterAdmin, cluster: Cluster, at_s: float) -> Look:
    """The running reassignments of a cluster, with the bytes left."""
    running = [one for one in cluster.partitions.values() if one.reassigning]
    copying = {broker for one in running for broker in one.adding} & set(cluster.brokers)
    sizes = admin.replica_sizes(sorted(copying)) if copying else {}
    return Look(at_s, [_copy(one, sizes) for one in sorted(running, key=lambda one: one.place)])


def left_bytes(partition: PartitionReplicas, brokers: Iterable[int], sizes: Sizes) -> int:
    """Bytes that replicas on these brokers still have to copy."""
    return sum(
        max(0, partition.size_bytes - sizes.get((partition.place, broker), 0))
        for broker in brokers
        if broker not in partition.in_sync
    )


def _copy(one: PartitionReplicas, sizes: Sizes) -> Copy:
    return Copy(one.place, one.target, one.adding, one.removing, one.size_bytes, left_bytes(one, one.adding, sizes))
