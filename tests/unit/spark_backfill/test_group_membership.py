"""A pipeline without its partitions gives way to another member, and not to an outage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from spark_backfill.pipeline.group_membership import ASK_EVERY_S, GIVE_WAY_S, GroupMembership
from tsdb.log.interface import METRICS, Position, TopicPartition
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable

PARTITIONS = 2
REQUEST_S = 10.0
POLL_S = 0.25


class LoneGroup:
    """A group in which the member has all partitions, or none while `taken`. away: no broker answers."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.taken = False
        self.away = False

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset() if self.taken else frozenset((METRICS, number) for number in range(PARTITIONS))

    def poll(self, timeout_s: float, *, max_records: int) -> list[object]:
        self._clock.sleep(timeout_s)
        return []

    def committed(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        if self.away:
            self._clock.sleep(REQUEST_S)
            raise Unavailable("no broker", reason="log_unavailable")
        return dict.fromkeys(places)

    def join(self, topics: Sequence[str], listener: object) -> None:
        """The member has all partitions at once."""

    def pause(self, topic: str, number: int) -> None:
        """The member fetches nothing."""

    def leave(self) -> None:
        """Another member does not wait for the partitions."""


class LogOf:
    """The part of a log that a membership uses."""

    def __init__(self, group: LoneGroup) -> None:
        self._group = group

    def partitions(self, topic: str) -> int:
        return PARTITIONS

    def group(self, group_id: str, engine: str) -> LoneGroup:
        return self._group


def keep_for(membership: GroupMembership, clock: ManualClock, seconds: float) -> None:
    until = clock.monotonic() + seconds
    while clock.monotonic() < until:
        membership.keep(POLL_S)


def test_a_pipeline_outlasts_an_outage_and_the_time_until_it_has_its_partitions_again() -> None:
    clock = ManualClock()
    group = LoneGroup(clock)
    log: Any = LogOf(group)
    with GroupMembership(log, clock) as membership:
        group.taken = group.away = True
        keep_for(membership, clock, 3 * GIVE_WAY_S)
        group.away = False
        keep_for(membership, clock, GIVE_WAY_S - ASK_EVERY_S)
        group.taken = False
        keep_for(membership, clock, 2 * GIVE_WAY_S)
        assert membership.is_alone


def test_a_pipeline_gives_way_to_a_member_that_stays() -> None:
    clock = ManualClock()
    group = LoneGroup(clock)
    log: Any = LogOf(group)
    with GroupMembership(log, clock) as membership:
        group.taken = True
        with pytest.raises(Unavailable, match="gives way") as refused:
            keep_for(membership, clock, 2 * GIVE_WAY_S)
        assert refused.value.reason == "group_in_use"
        assert GIVE_WAY_S < clock.monotonic() < GIVE_WAY_S + 1
