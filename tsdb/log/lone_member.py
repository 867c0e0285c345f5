"""Lone member: holds all partitions of a group and reads none, so that its commits can be set by hand."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tsdb.log.checks import with_followers
from tsdb.log.interface import Group, Log, Position, TopicPartition
from tsdb.model.errors import Unavailable

ALONE_WITHIN_S = 30.0  # A killed member keeps its partitions until its session times out.


@contextmanager
def lone_member(
    log: Log, group_id: str, topics: Sequence[str], followers: Mapping[str, str] | None = None
) -> Iterator[Group]:
    """A member that holds every partition during the block. Raises Unavailable (group_in_use)."""
    with log.group(group_id) as group:
        join_alone(log, group, topics, followers)
        yield group


def join_alone(log: Log, group: Group, topics: Sequence[str], followers: Mapping[str, str] | None = None) -> None:
    """Join, and wait for all partitions. Raises Unavailable (group_in_use) when another member keeps some."""
    leaders = [(topic, number) for topic in topics for number in range(log.partitions(topic))]
    wanted = set(with_followers(leaders, followers or {}))
    group.join(topics, IdleListener(log), followers=followers)
    give_up_at = time.monotonic() + ALONE_WITHIN_S
    while group.assigned() != wanted:
        if time.monotonic() > give_up_at:
            raise Unavailable(
                f"another member holds {len(wanted - group.assigned())} of {len(wanted)} partitions: stop every member"
                " of the group first",
                reason="group_in_use",
            )
        group.poll(0.1, max_records=1)


class IdleListener:
    """GroupListener that reads nothing: every partition begins at its end."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        """Begin at the current end."""
        starts: dict[TopicPartition, int] = {}
        for topic in {topic for topic, _ in committed}:
            marks = self._log.watermarks(topic, [number for name, number in committed if name == topic])
            starts |= {(topic, number): mark.high for number, mark in marks.items()}
        return starts

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        pass

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        pass
