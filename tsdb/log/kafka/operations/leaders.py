"""Even spread of preferred leaders: an optimal semi-matching of partitions and brokers by cost-reducing paths.

After Harvey, Ladner, Lovasz and Tamir, Semi-Matchings for Bipartite Graphs and Load Balancing (2003). Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping

from tsdb.log.kafka.operations.state import PartitionId, Replicas


def balanced_leaders(
    replicas: Mapping[PartitionId, Replicas], present: Mapping[PartitionId, Replicas]
) -> dict[PartitionId, Replicas]:
    """The same replicas with the preferred leader in front: no broker leads two partitions more than it must.

    Each topic is balanced alone, since its partitions carry a similar load. present: the replicas before the plan. A
    broker that has the partition's data leads rather than one that must copy it.
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
        came_by: dict[int, PartitionId | None] = {start: None}  # Broker -> the partition whose leader moves to it.
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
