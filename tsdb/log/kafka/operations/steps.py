"""Steps of a plan: groups moves that run together, and computes the bytes that they copy and the time that they take.
Pure.

Kafka adds the new replicas of a partition first and removes the old ones once all new ones are in sync (KIP-455). A
step keeps the number of replicas, so a partition never has fewer replicas in sync than before the step.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tsdb.log.kafka.operations.state import Cluster, PartitionId, Replicas


@dataclass(frozen=True, slots=True)
class Move:
    """The replicas of one partition, before and after. size_bytes: bytes of one replica."""

    place: PartitionId
    before: Replicas
    after: Replicas
    size_bytes: int = 0

    @property
    def added(self) -> Replicas:
        """Brokers that copy the partition; empty when the move changes only the leader."""
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def brokers(self) -> set[int]:
        return {*self.before, *self.after}

    @property
    def copied_bytes(self) -> int:
        return self.size_bytes * len(self.added)


@dataclass(frozen=True, slots=True)
class Step:
    """Moves that run together. seconds: expected time at the plan's throttle."""

    moves: tuple[Move, ...]
    seconds: float = 0.0

    @property
    def copied_bytes(self) -> int:
        return sum(move.copied_bytes for move in self.moves)

    @property
    def brokers(self) -> set[int]:
        return set().union(*(move.brokers for move in self.moves))


def moves_to(target: Mapping[PartitionId, Replicas], cluster: Cluster) -> list[Move]:
    """The moves from the present replicas to the target, ascending; partitions at their target are left out."""
    return [
        Move(place, present.target, target[place], present.size_bytes)
        for place in sorted(target)
        if (present := cluster.partitions[place]).target != target[place]
    ]


def steps_of(
    moves: Sequence[Move], cluster: Cluster, throttle_bytes_s: float, partitions_at_once: int
) -> tuple[Step, ...]:
    """Steps of at most `partitions_at_once` copies each, spread over the receiving brokers.

    Moves that copy nothing change only leaders; they are one step, the last.
    """
    copies = _alternating(move for move in moves if move.added)
    groups = [copies[at : at + partitions_at_once] for at in range(0, len(copies), partitions_at_once)]
    reorders = [move for move in moves if not move.added]
    return tuple(
        Step(tuple(group), step_seconds(group, cluster, throttle_bytes_s))
        for group in (*groups, *([reorders] if reorders else []))
    )


def step_seconds(moves: Iterable[Move], cluster: Cluster, throttle_bytes_s: float) -> float:
    """Time that moves take together; infinite when producers write as fast as the throttle lets brokers copy.

    Copies have to catch up with producers: a broker gains the throttle minus the rate of the partitions it copies.
    """

    def seconds(flow: CopyTraffic) -> float:
        gained = throttle_bytes_s - flow.write_bytes_s
        return flow.copied_bytes / gained if gained > 0 else math.inf

    return max(map(seconds, flows(moves, cluster)), default=0.0)


@dataclass(slots=True)
class CopyTraffic:
    """Copy traffic of one broker in one direction. write_bytes_s: rate of new records of these partitions during the
    copy."""

    broker_id: int
    direction: str
    copied_bytes: int = 0
    write_bytes_s: float = 0.0


def flows(moves: Iterable[Move], cluster: Cluster) -> list[CopyTraffic]:
    """The traffic of each broker that receives or sends copies."""
    found: dict[tuple[int, str], CopyTraffic] = {}
    for move in moves:
        rate = cluster.write_rates.get(move.place, 0.0)
        leader = cluster.partitions[move.place].leader
        for broker in move.added:
            for broker_id, direction in ((broker, "receive"), (leader, "send")):
                if broker_id is None:
                    continue
                flow = found.setdefault((broker_id, direction), CopyTraffic(broker_id, direction))
                flow.copied_bytes += move.size_bytes
                flow.write_bytes_s += rate
    return list(found.values())


def _alternating(moves: Iterable[Move]) -> list[Move]:
    """The moves with receiving brokers in turn, so that the moves of a step load different brokers."""
    queues: dict[int, deque[Move]] = defaultdict(deque)
    for move in moves:
        queues[move.added[0]].append(move)
    ordered: list[Move] = []
    while queues:
        for broker in sorted(queues):
            ordered.append(queues[broker].popleft())
            if not queues[broker]:
                del queues[broker]
    return ordered
