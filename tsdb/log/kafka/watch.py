"""Watch of a log's clients: one thread that finds readers, members and producers which stopped, and has them replaced.

A reader is stuck when it gets nothing of a partition for STUCK_S, although the log has more and answers lookups.
A member is stuck when it has no partition while the group has one for it. The owners replace their clients on their own
threads, with the next poll; the watch only names them.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tsdb.log.interface import TopicPartition
from tsdb.log.kafka.fetch import Fetch, Stuck, Wait
from tsdb.log.kafka.offsets import KafkaOffsets
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.periodic import Periodic

LOOK_EVERY_S = 3.0
IDLE_S = 3.0  # A partition that had an event within this time needs no look.
# More than the longest throttling by a broker's quota at its default (11 windows of 1 s).
STUCK_S = 12.0
# A stable group gives a member no partitions by itself. A rebalance waits for a killed member's session, 10 s.
SETTLED_WITHIN_S = 8.0
REBALANCED_WITHIN_S = 25.0
BEYOND_REPAIR_S = 60.0  # A restart is tried when new clients have not helped for this long.

log = get_logger(__name__)


class Watched(Protocol):
    """A client, or the user of one, under watch. `look` runs on the watch's thread and may wait for a broker."""

    def look(self) -> None:
        """Find out whether it makes progress. Raises TsdbError while the log does not answer."""

    def stalled(self) -> str:
        """Reason why new clients do not help, so that the process needs a restart; empty without a reason. Any thread
        may call it."""


class LogWatch(Periodic):
    """The thread `log-watch`, which starts with the first client."""

    def __init__(self) -> None:
        super().__init__("log-watch", LOOK_EVERY_S, self.look, at_once=False)
        self._lock = threading.Lock()  # Guards the fields below; not held during a look.
        self._watched: list[Watched] = []
        self._is_started = False

    def add(self, watched: Watched) -> None:
        """Begin to watch. Any thread may call it."""
        with self._lock:
            self._watched.append(watched)
            if not self._is_started and not self._closing.is_set():
                self._is_started = True
                self.start()

    def remove(self, watched: Watched) -> None:
        """End the watch of a client; a look in progress may still end later. Any thread may call it."""
        with self._lock:
            if watched in self._watched:
                self._watched.remove(watched)

    def look(self) -> None:
        """Look at every client once."""
        for watched in self._all():
            if self._closing.is_set():
                return
            try:
                watched.look()
            except TsdbError as error:
                log.debug("a client of the log was not looked at", reason=error.reason, error=error.message)

    def stalled(self) -> str:
        """The first reason of a client; empty without a reason."""
        return next(filter(None, (watched.stalled() for watched in self._all())), "")

    def _all(self) -> list[Watched]:
        with self._lock:
            return list(self._watched)


@dataclass(slots=True)
class _Behind:
    """A partition with more in the log than was reached. waited_s: the time that the reader had waited at the first
    such check.
    """

    reached: int
    waited_s: float
    since: float
    tries: int = 0  # Number of times that it was read again from here.


class FetchWatch:
    """Watched: one Fetch. The thread of the watch owns all fields."""

    def __init__(self, fetch: Fetch, offsets: KafkaOffsets, clock: Clock) -> None:
        self._fetch = fetch
        self._offsets = offsets
        self._clock = clock
        self._behind: dict[TopicPartition, _Behind] = {}

    def look(self) -> None:
        waits = self._fetch.waits()
        idle = {partition: wait for partition, wait in waits.items() if wait.waited_s >= IDLE_S}
        known, self._behind = self._behind, {}
        # Partitions that were read again a moment ago, and from which nothing came yet.
        behind = {
            partition: found
            for partition, found in known.items()
            if partition in waits and partition not in idle and waits[partition].reached == found.reached
        }
        for partition, high in self._high(idle).items():
            if high > idle[partition].reached:
                behind[partition] = self._follow(known.get(partition), idle[partition])
        stuck = [
            partition
            for partition, found in behind.items()
            if partition in idle and idle[partition].waited_s - found.waited_s >= STUCK_S
        ]
        # Other partitions that move show that the consumer works. Then only this partition is read again, once.
        works = len(idle) < len(waits) and not any(behind[partition].tries for partition in stuck)
        for partition in stuck:
            behind[partition].tries += 1
        self._behind = behind
        self._fetch.stuck = Stuck(frozenset(stuck), is_whole=not works)

    def stalled(self) -> str:
        now = self._clock.monotonic()
        for (topic, partition), found in list(self._behind.items()):
            if now - found.since > BEYOND_REPAIR_S:
                return (
                    f"topic {topic}, partition {partition}: no record from {found.reached} on for "
                    f"{now - found.since:.0f} s, although the log has more"
                )
        return ""

    def _follow(self, known: _Behind | None, wait: Wait) -> _Behind:
        """The record of a partition that is behind; a new one when it has moved or is read again."""
        if known is None or known.reached != wait.reached:
            return _Behind(wait.reached, wait.waited_s, self._clock.monotonic())
        if wait.waited_s < known.waited_s:
            return _Behind(wait.reached, wait.waited_s, known.since, known.tries)
        return known

    def _high(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Raises Unavailable. Nothing is behind then: without a broker no reader gets anything."""
        found = {}
        for topic in {topic for topic, _ in partitions}:
            numbers = sorted(number for name, number in partitions if name == topic)
            for number, high in self._offsets.high_watermarks(topic, numbers).items():
                found[topic, number] = high
        return found


class IdleMemberState(Enum):
    """State of a member without partitions."""

    JOINING = "the group has a partition for it"
    REBALANCING = "the group is about to share its partitions anew"
    SPARE = "the other members have all partitions, one each"


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group as its coordinator sees it. assigned: the partitions of each member, an empty set for one without."""

    is_stable: bool
    assigned: Sequence[frozenset[TopicPartition]]


def standing_of(group: GroupState, partitions: Mapping[str, int]) -> IdleMemberState:
    """State of a member that has no partitions. partitions: number of partitions of each topic of the group."""
    wanted = {(topic, number) for topic, count in partitions.items() for number in range(count)}
    taken = frozenset().union(*group.assigned)
    # If a partition were left over, the group would share it, because the assignment is balanced.
    if wanted <= taken and all(len(one & wanted) <= 1 for one in group.assigned):
        return IdleMemberState.SPARE
    return IdleMemberState.JOINING if group.is_stable else IdleMemberState.REBALANCING
