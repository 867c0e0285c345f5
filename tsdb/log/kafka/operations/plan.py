"""A plan: steps, throttle and cluster, as a value and as JSON. The plan file is docs/kafka-operations.md, "Plan file".

Each step contains Kafka's own reassignment JSON, which `kafka-reassign-partitions.sh` reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tsdb.log.kafka.operations.refusals import check_plan, check_wish
from tsdb.log.kafka.operations.state import Cluster, PartitionId
from tsdb.log.kafka.operations.steps import Move, Step, moves_to, steps_of
from tsdb.log.kafka.operations.target import Wish, target_replicas
from tsdb.model.errors import InvalidRequest

VERSION = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps that run one after the other. throttle_bytes_s: limit of the copies alone, of each broker, in and out."""

    cluster_id: str
    throttle_bytes_s: int
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        """Expected time of all steps."""
        return sum(step.seconds for step in self.steps)

    @property
    def copied_bytes(self) -> int:
        return sum(step.copied_bytes for step in self.steps)

    @property
    def moves(self) -> list[Move]:
        return [move for step in self.steps for move in step.moves]

    @property
    def brokers(self) -> set[int]:
        """Brokers that the plan copies from or to, or takes replicas from."""
        return set().union(*(step.brokers for step in self.steps))

    def to_json(self) -> dict[str, Any]:
        """The plan file as plain JSON."""
        return {
            "version": VERSION,
            "cluster_id": self.cluster_id,
            "throttle_bytes_s": self.throttle_bytes_s,
            "seconds": round(self.seconds, 1),
            "copied_bytes": self.copied_bytes,
            "steps": [_step_json(step) for step in self.steps],
        }


def make_plan(cluster: Cluster, wish: Wish, throttle_bytes_s: int, partitions_at_once: int) -> Plan:
    """The plan for a wish. Raises PlanRefused that names every reason; a plan without steps is valid."""
    check_wish(cluster, wish)
    moves = moves_to(target_replicas(cluster, wish), cluster)
    steps = steps_of(moves, cluster, throttle_bytes_s, partitions_at_once)
    check_plan(cluster, steps, throttle_bytes_s)
    return Plan(cluster.cluster_id, throttle_bytes_s, steps)


def reassignment_json(step: Step, *, back: bool = False) -> dict[str, Any]:
    """A step in the format of `kafka-reassign-partitions.sh`. back: give the replicas before the step."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": move.place.topic,
                "partition": move.place.partition,
                "replicas": list(move.before if back else move.after),
            }
            for move in step.moves
        ],
    }


def parse_plan(text: str | bytes, source: str) -> Plan:
    """Parse a plan file. Raises InvalidRequest (plan_file), which names the file and the bad field."""
    try:
        data = json.loads(text)
        if data["version"] != VERSION:
            raise _bad(source, f"version is {data['version']!r}, this release reads {VERSION}")
        plan = Plan(str(data["cluster_id"]), int(data["throttle_bytes_s"]), tuple(map(_step, data["steps"])))
    except KeyError as error:
        raise _bad(source, f"it has no field {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise _bad(source, str(error)) from error
    for move in plan.moves:
        if not move.after or len(move.before) != len(move.after) or len(set(move.after)) != len(move.after):
            raise _bad(source, f"{move.place}: {list(move.before)} to {list(move.after)} changes their number")
    if plan.throttle_bytes_s <= 0:
        raise _bad(source, f"throttle_bytes_s is {plan.throttle_bytes_s}, must be above 0")
    return plan


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "seconds": round(step.seconds, 1),
        "copied_bytes": step.copied_bytes,
        "size_bytes": [move.size_bytes for move in step.moves],
        "reassignment": reassignment_json(step),
        "rollback": reassignment_json(step, back=True),
    }


def _step(data: dict[str, Any]) -> Step:
    rows = zip(data["reassignment"]["partitions"], data["rollback"]["partitions"], data["size_bytes"], strict=True)
    moves = []
    for after, before, size_bytes in rows:
        place = PartitionId(str(after["topic"]), int(after["partition"]))
        if (before["topic"], before["partition"]) != (place.topic, place.partition):
            raise ValueError(f"rollback of {place}, which is of another partition")
        moves.append(Move(place, _replicas(before), _replicas(after), int(size_bytes)))
    return Step(tuple(moves), float(data["seconds"]))


def _replicas(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(int(broker) for broker in row["replicas"])


def _bad(source: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"{source} is not a plan: {why}; make one with `tsdb kafka plan ... --output json > plan.json`",
        reason="plan_file",
    )
