"""A plan comes back from its file as it was, each step is Kafka's own JSON, and a bad file is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.kafka.clusters import MIB, TOPIC, cluster_of
from tsdb.log.kafka.operations.plan import Plan, make_plan, parse_plan, reassignment_json
from tsdb.log.kafka.operations.target import Wish
from tsdb.model.errors import InvalidRequest


def drain_one(partitions_at_once: int = 2, **cluster: Any) -> Plan:
    """Broker 3 is drained of three partitions, and only broker 4 lacks them."""
    made = cluster_of([(1, 2, 3), (3, 2, 1), (2, 1, 3)], live=(1, 2, 3, 4), **cluster)
    return make_plan(made, Wish([TOPIC], drain=frozenset({3})), MIB, partitions_at_once)


def test_a_plan_comes_back_from_its_file() -> None:
    plan = drain_one()
    assert parse_plan(json.dumps(plan.to_json()), "x") == plan


def test_a_step_is_in_the_format_of_kafkas_own_tool() -> None:
    (step,) = drain_one(partitions_at_once=3).steps
    moves = {(row["topic"], row["partition"]): row["replicas"] for row in reassignment_json(step)["partitions"]}
    assert moves == {(TOPIC, 0): [1, 2, 4], (TOPIC, 1): [4, 2, 1], (TOPIC, 2): [2, 1, 4]}
    rows = reassignment_json(step, back=True)["partitions"]
    back = {(row["topic"], row["partition"]): row["replicas"] for row in rows}
    assert back == {(TOPIC, 0): [1, 2, 3], (TOPIC, 1): [3, 2, 1], (TOPIC, 2): [2, 1, 3]}


def test_a_step_copies_at_most_the_given_number_of_partitions() -> None:
    assert [len(step.moves) for step in drain_one(partitions_at_once=2).steps] == [2, 1]


def test_moves_of_a_step_load_different_brokers() -> None:
    cluster = cluster_of([(1, 3)] * 2 + [(2, 3)] * 2, live=(1, 2, 3, 4, 5))
    plan = make_plan(cluster, Wish([TOPIC], drain=frozenset({3})), MIB, 2)
    assert [{move.added[0] for move in step.moves} for step in plan.steps] == [{4, 5}, {4, 5}]


def test_the_time_of_a_step_is_that_of_its_busiest_broker_and_copies_catch_up_with_producers() -> None:
    # Broker 4 receives 3 partitions of 10 MiB at 1 MiB/s, of which producers take 3 x 0.25.
    plan = drain_one(partitions_at_once=3, rate_bytes_s=MIB / 4)
    assert plan.seconds == pytest.approx(120.0)


def test_leaders_that_move_without_data_are_one_step_at_the_end() -> None:
    plan = make_plan(cluster_of([(1, 2), (1, 3), (1, 2)]), Wish([TOPIC], spread="leaders"), MIB, 1)
    (step,) = plan.steps
    assert (step.copied_bytes, step.seconds) == (0, 0.0)
    assert {move.after[0] for move in step.moves} <= {2, 3}


def other_move(partition: int, *replicas: int) -> dict[str, Any]:
    """A step whose new replicas do not fit its old ones."""
    row = {"topic": TOPIC, "partition": partition, "replicas": list(replicas)}
    return {"steps": [{"reassignment": {"partitions": [row]}}]}


BROKEN: dict[str, Any] = {
    "no JSON": "{",
    "no object": "[]",
    "no plan": "{}",
    "newer": {"version": 2},
    "throttle": {"throttle_bytes_s": 0},
    "no steps": {"steps": None},
    "fewer replicas": other_move(0, 1),
    "same broker twice": other_move(0, 1, 1),
    "rollback of another partition": other_move(7, 1, 4),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_is_no_plan_is_refused_by_name(case: str) -> None:
    change = BROKEN[case]
    if isinstance(change, dict):
        good = make_plan(cluster_of([(1, 3)], live=(1, 3, 4)), Wish([TOPIC], drain=frozenset({3})), MIB, 1).to_json()
        if change.get("steps"):
            change = {"steps": [good["steps"][0] | change["steps"][0]]}
        change = json.dumps(good | change)
    with pytest.raises(InvalidRequest, match=r"^plan\.json is not a plan: .*tsdb kafka plan") as refused:
        parse_plan(change, "plan.json")
    assert refused.value.reason == "plan_file"
