"""Coordinator: assigns the partitions of an embedded log to the members of one group, all in one process.

A partition changes its owner in two steps, as in Kafka's incremental rebalance: its holder gives it up during a poll,
then the next owner takes it during its next poll. Every change of members starts a new generation. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tsdb.log.interface import TopicPartition
from tsdb.model.clock import Clock

POLL_INTERVAL_MAX_S = 300.0  # The default of Kafka: a member that is silent for longer has lost its partitions.


@dataclass(slots=True)
class _Member:
    topics: frozenset[str]
    client_id: str
    wake: Callable[[], None]
    seen_at: float
    held: set[TopicPartition] = field(default_factory=set)
    target: set[TopicPartition] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Change:
    """Actions for a member. lost: the member timed out and holds no partitions any more."""

    lost: bool = False
    revoke: frozenset[TopicPartition] = frozenset()
    take: frozenset[TopicPartition] = frozenset()


class Coordinator:
    """Members are numbered. The number of a topic's partitions comes from the first member that joins with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # Guards everything below; callers' listeners run outside.
        self._members: dict[int, _Member] = {}
        self._partitions: dict[str, int] = {}
        self._numbers = 0
        self.generation = 0

    def join(self, partitions: dict[str, int], client_id: str = "", wake: Callable[[], None] = lambda: None) -> int:
        """Add a member for these topics (name -> number of partitions). Returns the member's number.

        wake: called, from any thread and without waiting, when other members' changes give the member something to do:
        it should `beat`.
        """
        with self._lock:
            self._numbers += 1
            self._partitions.update(partitions)
            self._members[self._numbers] = _Member(frozenset(partitions), client_id, wake, self._clock.monotonic())
            self._rebalance_locked()
            self._wake_others_locked(self._numbers)
            return self._numbers

    def leave(self, number: int) -> None:
        """Remove a member. Its partitions are free at once."""
        with self._lock:
            if self._members.pop(number, None) is not None:
                self._rebalance_locked()
                self._wake_others_locked(number)

    def beat(self, number: int) -> Change:
        """Report the member alive and return its actions. It owns the partitions to take from this answer on."""
        with self._lock:
            now = self._clock.monotonic()
            dead = [n for n, m in self._members.items() if n != number and now - m.seen_at > POLL_INTERVAL_MAX_S]
            for other in dead:
                del self._members[other]
            if dead:
                self._rebalance_locked()
                self._wake_others_locked(number)
            member = self._members.get(number)
            if member is None:
                return Change(lost=True)
            member.seen_at = now
            others = set().union(*(m.held for n, m in self._members.items() if n != number))
            take = member.target - member.held - others
            member.held |= take
            return Change(revoke=frozenset(member.held - member.target), take=frozenset(take))

    def released(self, number: int, partitions: Sequence[TopicPartition]) -> None:
        """The member has given these partitions up."""
        with self._lock:
            member = self._members.get(number)
            if member is not None and not member.held.isdisjoint(partitions):
                member.held.difference_update(partitions)
                self._wake_others_locked(number)

    def holds(self, number: int, partition: TopicPartition) -> bool:
        """Whether the member may commit a partition: it holds it and has not timed out."""
        with self._lock:
            member = self._members.get(number)
            return member is not None and partition in member.held

    def is_spare(self, number: int) -> bool:
        """Whether the others have all partitions, and none is meant for this member."""
        with self._lock:
            member = self._members.get(number)
            return member is not None and not member.target and not member.held

    def clients(self) -> list[str]:
        """Client ids of all members."""
        with self._lock:
            return [member.client_id for member in self._members.values()]

    def _wake_others_locked(self, number: int) -> None:
        for other, member in self._members.items():
            if other != number:
                member.wake()

    def _rebalance_locked(self) -> None:
        """Even shares. Members keep the partitions they hold as far as even shares allow."""
        self.generation += 1
        for member in self._members.values():
            member.target = set()
        for topic, count in sorted(self._partitions.items()):
            takers = [member for _, member in sorted(self._members.items()) if topic in member.topics]
            if takers:
                _share([(topic, partition) for partition in range(count)], takers)


def _share(partitions: Sequence[TopicPartition], takers: Sequence[_Member]) -> None:
    least, extra = divmod(len(partitions), len(takers))
    by_holdings = sorted(takers, key=lambda member: -len(member.held & set(partitions)))
    capacity = {id(member): least + (place < extra) for place, member in enumerate(by_holdings)}
    homeless: list[TopicPartition] = []
    for partition in partitions:
        holder = next((m for m in takers if partition in m.held and capacity[id(m)]), None)
        if holder is None:
            homeless.append(partition)
            continue
        capacity[id(holder)] -= 1
        holder.target.add(partition)
    for member in takers:
        for _ in range(capacity[id(member)]):
            member.target.add(homeless.pop(0))
