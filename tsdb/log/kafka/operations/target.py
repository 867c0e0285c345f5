"""Target of a plan: computes the final replicas and leaders of partitions, with the fewest moved replicas. Pure.

A replica moves only when its broker is drained, when it shares a rack that it need not share, or when its broker has
more replicas of the topic than another one. The number of a partition's replicas never changes, and its number of racks
never falls while the allowed brokers have them.

Preferred leaders are spread evenly by an optimal semi-matching of partitions and brokers, with cost-reducing paths.

After Harvey, Ladner, Lovasz and Tamir, Semi-Matchings for Bipartite Graphs and Load Balancing (2003). Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tsdb.log.kafka.operations.state import Cluster, PartitionId, PartitionReplicas, Replicas

Spread = Literal["leaders", "replicas"]


@dataclass(frozen=True, slots=True)
class Wish:
    """The change that a user asks for. topics: names in Kafka. drain, drain_racks: brokers and racks that have no
    replicas at the end.

    add: brokers that get an even share. spread: `leaders` moves no data; `replicas` evens out replicas and leaders over
    all live brokers.

    """

    topics: Collection[str]
    drain: frozenset[int] = frozenset()
    drain_racks: frozenset[str] = frozenset()
    add: frozenset[int] = frozenset()
    spread: Spread | None = None

    def drained(self, cluster: Cluster) -> set[int]:
        """Ids of the brokers to drain, those of drained racks included."""
        of_racks = {broker.broker_id for broker in cluster.brokers.values() if broker.rack in self.drain_racks}
        return set(self.drain) | of_racks

    def allowed(self, cluster: Cluster) -> set[int]:
        """Live brokers that may hold replicas at the end."""
        live = set(cluster.brokers)
        if self.add and self.spread != "replicas":
            holding = {broker for partition in cluster.of_topics(self.topics) for broker in partition.replicas}
            live &= holding | self.add
        return live - self.drained(cluster)


def target_replicas(cluster: Cluster, wish: Wish) -> dict[PartitionId, Replicas]:
    """Final replicas of each partition of the wish's topics.

    The wish has passed `check_wish`.

    """
    result: dict[PartitionId, Replicas] = {}
    for topic in sorted(set(wish.topics)):
        result |= _topic_target(cluster, wish, cluster.of_topics([topic]))
    if wish.spread or wish.add:
        return balanced_leaders(result, {place: cluster.partitions[place].replicas for place in result})
    return result


def _topic_target(cluster: Cluster, wish: Wish, partitions: Sequence[PartitionReplicas]) -> dict[PartitionId, Replicas]:
    placement = _Placement(cluster, wish.allowed(cluster), partitions)
    drained = wish.drained(cluster)
    for partition in partitions:
        for broker in partition.target:
            if broker in drained:
                placement.replace(partition.place, broker)
    if wish.add or wish.spread == "replicas":
        placement.spread_racks()
        placement.even_out()
    return placement.replicas


class _Placement:
    """Replicas of one topic while a target is found. allowed: brokers that may get replicas."""

    def __init__(self, cluster: Cluster, allowed: set[int], partitions: Sequence[PartitionReplicas]) -> None:
        self._cluster = cluster
        self._allowed = allowed
        self._sizes = {partition.place: partition.size_bytes for partition in partitions}
        self.replicas = {partition.place: partition.target for partition in partitions}
        self._counts = Counter(dict.fromkeys(allowed, 0))
        self._bytes = Counter(dict.fromkeys(allowed, 0))
        for partition in partitions:
            for broker in partition.target:
                self._count(partition.place, broker, 1)

    def replace(self, place: PartitionId, old: int) -> None:
        """Move a replica to the best allowed broker: a rack without the partition first, then the least loaded."""
        others = [broker for broker in self.replicas[place] if broker != old]
        free = self._allowed.difference(others, [old])
        assert free, f"{place}: no broker is left for a replica of broker {old}; check_wish counts them"
        racks = [self._cluster.rack(broker) for broker in others]
        best = min(free, key=lambda broker: (racks.count(self._cluster.rack(broker)), self._load(broker)))
        self._move(place, old, best)

    def spread_racks(self) -> None:
        """Move each replica that shares its rack, where an allowed broker of a rack without the partition exists."""
        for place in self.replicas:
            for broker in self.replicas[place]:
                racks = [self._cluster.rack(other) for other in self.replicas[place]]
                offered = {self._cluster.rack(other) for other in self._allowed}
                if racks.count(self._cluster.rack(broker)) > 1 and offered - set(racks):
                    self.replace(place, broker)

    def even_out(self) -> None:
        """Move replicas from full to empty brokers until no move makes the numbers more even.

        Each move makes the sum of squared numbers smaller, so the loop ends.
        """
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        by_load = sorted(self._counts, key=self._load)
        for full in reversed(by_load):
            for empty in by_load:
                if self._counts[full] - self._counts[empty] < 2:
                    break
                movable = [place for place in self.replicas if self._may_move(place, full, empty)]
                if movable:
                    self._move(min(movable, key=lambda place: (self._sizes[place], place)), full, empty)
                    return True
        return False

    def _may_move(self, place: PartitionId, old: int, new: int) -> bool:
        replicas = self.replicas[place]
        if old not in replicas or new in replicas:
            return False
        others = [self._cluster.rack(broker) for broker in replicas if broker != old]
        return len({*others, self._cluster.rack(new)}) >= len({*others, self._cluster.rack(old)})

    def _move(self, place: PartitionId, old: int, new: int) -> None:
        self.replicas[place] = tuple(new if broker == old else broker for broker in self.replicas[place])
        self._count(place, old, -1)
        self._count(place, new, 1)

    def _count(self, place: PartitionId, broker: int, change: int) -> None:
        if broker in self._allowed:  # Other brokers get no replica, and only `replace` takes replicas from them.
            self._counts[broker] += change
            self._bytes[broker] += change * self._sizes[place]

    def _load(self, broker: int) -> tuple[int, int, int]:
        return self._counts[broker], self._bytes[broker], broker


def balanced_leaders(
    replicas: Mapping[PartitionId, Replicas], present: Mapping[PartitionId, Replicas]
) -> dict[PartitionId, Replicas]:
    """The same replicas with the preferred leader first. No broker leads two partitions more than it must.

    Each topic is balanced alone, since its partitions carry a similar load. present: the replicas before the plan. A
    broker that has the partition's data is preferred to one that must copy it.

    """
    result: dict[PartitionId, Replicas] = {}
    for topic in sorted({place.topic for place in replicas}):
        of_topic = {place: replicas[place] for place in sorted(replicas) if place.topic == topic}
        leaders = {
            place: next((broker for broker in brokers if broker in present[place]), brokers[0])
            for place, brokers in of_topic.items()
        }
        while _shift(of_topic, leaders):
            pass
        for place, brokers in of_topic.items():
            result[place] = (leaders[place], *(broker for broker in brokers if broker != leaders[place]))
    return result


def _shift(replicas: Mapping[PartitionId, Replicas], leaders: dict[PartitionId, int]) -> bool:
    """Move one leadership along a path to a broker with at least two fewer. False: no such path exists."""
    counts = Counter({broker: 0 for brokers in replicas.values() for broker in brokers})
    counts.update(leaders.values())
    led = defaultdict(list)
    for place, leader in leaders.items():
        led[leader].append(place)
    for start in sorted(counts, key=lambda broker: (-counts[broker], broker)):
        # The partition whose leader moves to a broker, by broker.
        came_by: dict[int, PartitionId | None] = {start: None}
        queue = deque([start])
        while queue:
            broker = queue.popleft()
            if counts[start] - counts[broker] >= 2:
                _move_along(came_by, leaders, broker)
                return True
            for place in led[broker]:
                for other in replicas[place]:
                    if other not in came_by:
                        came_by[other] = place
                        queue.append(other)
    return False


def _move_along(came_by: Mapping[int, PartitionId | None], leaders: dict[PartitionId, int], end: int) -> None:
    broker = end
    while (place := came_by[broker]) is not None:
        before = leaders[place]
        leaders[place] = broker
        broker = before
