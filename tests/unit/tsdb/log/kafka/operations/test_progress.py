"""Progress is bytes that new replicas lack, and a time only while fewer are left; throttles name the copies alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.kafka.clusters import MIB, TOPIC, cluster_of, during
from tsdb.log.kafka.operations.plan import make_plan
from tsdb.log.kafka.operations.progress import Copy, Look, left_bytes
from tsdb.log.kafka.operations.state import PartitionId
from tsdb.log.kafka.operations.target import Wish
from tsdb.log.kafka.operations.throttles import FOLLOWER_LIST, LEADER_LIST, throttled_lists

CLUSTER = cluster_of([(1, 2, 3)], live=(1, 2, 3, 4), size_bytes=10 * MIB)
PLACE = PartitionId(TOPIC, 0)


def look(at_s: float, left: int) -> Look:
    return Look(at_s, [Copy(PLACE, (1, 2, 4), (4,), (3,), 10 * MIB, left)])


def test_new_replicas_lack_what_the_leader_has_beyond_theirs_until_they_are_in_sync() -> None:
    one = CLUSTER.partitions[PLACE]
    assert left_bytes(one, (4,), {}) == 10 * MIB
    assert left_bytes(one, (4,), {(PLACE, 4): 7 * MIB}) == 3 * MIB
    assert left_bytes(one, (4,), {(PLACE, 4): 11 * MIB}) == 0
    assert left_bytes(replace(one, in_sync=frozenset({1, 2, 3, 4})), (4,), {}) == 0


def test_time_left_follows_the_rate_between_two_looks() -> None:
    first, second = look(100.0, 10 * MIB), look(102.0, 6 * MIB)
    assert second.rate_since(first) == pytest.approx(2 * MIB)
    assert second.seconds_left(first) == pytest.approx(3.0)
    assert (first.rate_since(None), first.seconds_left(None)) == (None, None)


def test_there_is_no_time_left_while_producers_are_as_fast_as_the_copies() -> None:
    assert look(102.0, 10 * MIB).seconds_left(look(100.0, 10 * MIB)) is None
    assert look(102.0, 11 * MIB).seconds_left(look(100.0, 10 * MIB)) is None


def test_a_step_throttles_old_replicas_as_leaders_and_new_ones_as_followers() -> None:
    (step,) = make_plan(CLUSTER, Wish([TOPIC], drain=frozenset({3})), MIB, 1).steps
    assert throttled_lists(step) == {TOPIC: {LEADER_LIST: "0:1,0:2,0:3", FOLLOWER_LIST: "0:4"}}
    assert during(CLUSTER, step).partitions[PLACE].adding == (4,)


def test_a_step_that_moves_only_leaders_throttles_nothing() -> None:
    cluster = cluster_of([(1, 2), (1, 2)])
    (step,) = make_plan(cluster, Wish([TOPIC], spread="leaders"), MIB, 1).steps
    assert throttled_lists(step) == {}
