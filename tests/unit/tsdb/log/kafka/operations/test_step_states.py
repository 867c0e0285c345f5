"""The state of a plan is what the cluster shows: done, running, left, or no state of this plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.kafka.clusters import MIB, TOPIC, after, cluster_of, during
from tsdb.log.kafka.operations.application import MoveState, step_states
from tsdb.log.kafka.operations.plan import make_plan
from tsdb.log.kafka.operations.refusals import PlanRefused
from tsdb.log.kafka.operations.state import Cluster, PartitionId
from tsdb.log.kafka.operations.target import Wish

CLUSTER = cluster_of([(1, 2, 3), (3, 2, 1)], live=(1, 2, 3, 4))
PLAN = make_plan(CLUSTER, Wish([TOPIC], drain=frozenset({3})), MIB, 1)
FIRST, SECOND = PLAN.steps


def states(cluster: Cluster) -> list[MoveState]:
    return [one.state for one in step_states(PLAN, cluster)]


def with_partition(cluster: Cluster, number: int, **change: Any) -> Cluster:
    place = PartitionId(TOPIC, number)
    changed = replace(cluster.partitions[place], **change)
    return replace(cluster, partitions={**cluster.partitions, place: changed})


def test_steps_are_left_then_running_then_done() -> None:
    assert states(CLUSTER) == [MoveState.LEFT, MoveState.LEFT]
    assert states(during(CLUSTER, FIRST)) == [MoveState.RUNNING, MoveState.LEFT]
    assert states(after(CLUSTER, FIRST)) == [MoveState.DONE, MoveState.LEFT]
    assert states(after(after(CLUSTER, FIRST), SECOND)) == [MoveState.DONE, MoveState.DONE]


def test_a_move_is_done_only_with_its_leader_elected_and_its_copies_in_sync() -> None:
    moved = after(CLUSTER, SECOND)
    (move,) = SECOND.moves
    assert move.after[0] == 4
    assert states(with_partition(moved, 1, leader=2))[1] is MoveState.LEFT
    assert states(with_partition(moved, 1, in_sync=frozenset({1, 2})))[1] is MoveState.LEFT


def test_metadata_that_is_a_moment_older_than_the_end_is_no_contradiction() -> None:
    union = with_partition(during(CLUSTER, FIRST), 0, adding=(), removing=())
    assert states(union) == [MoveState.RUNNING, MoveState.LEFT]


@pytest.mark.parametrize(
    "change",
    [{"replicas": (1, 2, 5)}, {"replicas": (1, 2, 5, 3), "adding": (5,), "removing": (3,)}],
    ids=("moved", "moving"),
)
def test_a_partition_that_others_have_moved_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PlanRefused, match=r"metrics-0 has the replicas \[1, 2, 5\], neither those before") as refused:
        states(with_partition(CLUSTER, 0, **change))
    assert refused.value.reason == "plan_outdated"


def test_a_plan_for_another_cluster_is_refused() -> None:
    with pytest.raises(PlanRefused, match="the plan is for cluster c1, this is c2") as refused:
        states(replace(CLUSTER, cluster_id="c2"))
    assert refused.value.reason == "other_cluster"


def test_a_deleted_topic_is_refused() -> None:
    with pytest.raises(PlanRefused, match="metrics-0 does not exist any more"):
        states(replace(CLUSTER, partitions={}))
