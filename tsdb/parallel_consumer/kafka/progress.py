"""StallDetector: finds a member that is stuck after an outage, so that the source replaces its consumer.

Stuck is a member that gets nothing of its partitions although the log has more, or one that has no partition although
the group has some for it, both while brokers answer. Requests go out in the background on a separate client: the stuck
one may answer nothing. One thread.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented there, not marked as exported
    OffsetSpec,
)

from tsdb.kafka_clients import new_admin
from tsdb.parallel_consumer.clock import Clock, SystemClock
from tsdb.parallel_consumer.kafka.library_log import with_logger
from tsdb.parallel_consumer.kafka.settings import connection_settings
from tsdb.parallel_consumer.record import TopicPartition

IDLE_S = 3.0  # A partition that had an event within this time needs no look.
LOOK_EVERY_S = 2.0
REQUEST_S = 3.0
LOST_AFTER_S = 8.0  # An answer that is later than its own timeout will never come.
PAUSE_S_MAX = 1.0  # A longer pause between two polls is the consumer's own.
STUCK_S = 12.0  # More than the longest throttling by a broker's quota at its default (11 windows of 1 s).
SETTLED_WITHIN_S = 8.0  # A stable group gives a member no partitions by itself.
REBALANCED_WITHIN_S = 25.0  # A rebalance waits for the session of a killed member.
REBALANCING = frozenset({ConsumerGroupState.PREPARING_REBALANCING, ConsumerGroupState.COMPLETING_REBALANCING})

log = logging.getLogger("tsdb.parallel_consumer")


@dataclass(slots=True)
class _Wait:
    """reached: offset below which everything was read. since: `_polled_s` at the last event. behind_since: `_polled_s`
    when the log was first seen to have more."""

    reached: int
    since: float
    behind_since: float | None = None


class StallDetector:
    """config: settings of the consumer. sizes: number of partitions of the group's topics, where it is known."""

    def __init__(self, config: Mapping[str, object], *, clock: Clock | None = None, admin: Any = None) -> None:
        self._settings: Any = with_logger(connection_settings(config))
        self._group = str(config.get("group.id", ""))
        self._clock = clock or SystemClock()
        self._admin: Any = admin  # Created when records first seem to be missing.
        self._polled_at = self._clock.monotonic()
        self._polled_s = 0.0
        self._waits: dict[TopicPartition, _Wait] = {}
        self._without_since: float | None = None  # Time since which the member has no partitions.
        self._free_since: float | None = None  # Time since which the group has some for it.
        self._looked_at = self._polled_at
        self._pending: dict[Any, Future[Any]] = {}
        self._asks_group = False  # Whether a request about the group follows.
        self._of_group = False  # Whether the pending request is about the group.
        self.sizes: dict[str, int] = {}

    def assigned(self, starts: Mapping[TopicPartition, int]) -> None:
        """These partitions are read, from these offsets on."""
        self._waits.update({place: _Wait(offset, self._polled_s) for place, offset in starts.items()})

    def removed(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are not read: paused, or given up."""
        for place in partitions:
            self._waits.pop(place, None)

    def moved(self, place: TopicPartition, reached: int) -> None:
        """A record or the end of a partition came."""
        if place in self._waits:
            self._waits[place] = _Wait(reached, self._polled_s)

    def stuck(self, *, has_partitions: bool) -> str:
        """Called with each poll. The reason why the consumer is to be replaced; empty while it is well."""
        now = self._clock.monotonic()
        self._polled_s += min(now - self._polled_at, PAUSE_S_MAX)
        self._polled_at = now
        if has_partitions:
            self._without_since = self._free_since = None
        elif self._without_since is None:
            self._without_since = now
        self._settle(now)
        if not self._pending and now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            self._request(now)
        return self._reason(now)

    def renewed(self) -> None:
        """The consumer was replaced: it has its time again."""
        self._waits.clear()
        self._pending, self._without_since, self._free_since = {}, None, None

    def _reason(self, now: float) -> str:
        for (topic, partition), wait in self._waits.items():
            if wait.behind_since is not None and self._polled_s - wait.behind_since >= STUCK_S:
                return f"nothing of topic {topic}, partition {partition} came for {STUCK_S:g} s, although there is more"
        if self._free_since is not None and now >= self._free_since:
            return "the group has partitions for this member, and it got none"
        return ""

    def _request(self, now: float) -> None:
        idle = [place for place, wait in self._waits.items() if self._polled_s - wait.since >= IDLE_S]
        waits = self._without_since is not None and now - self._without_since >= IDLE_S
        # When the member has no partitions, offsets are requested first. While no broker answers nothing is wrong here,
        # and requests about groups that time out may end the process (an assertion of librdkafka 2.16).
        places = idle or ([(topic, 0) for topic in self.sizes] if waits else [])
        if not places:
            return
        if self._admin is None:
            self._admin = new_admin(self._settings)
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {KafkaPartition(*place): latest for place in places}
        self._asks_group, self._of_group = waits, False
        self._send(lambda: self._admin.list_offsets(wanted, request_timeout=REQUEST_S))

    def _send(self, request: Any) -> None:
        try:
            self._pending = dict(request())
        except KafkaException as error:
            log.debug("progress not looked at: %s", error)
            self._pending = {}

    def _settle(self, now: float) -> None:
        if not self._pending:
            return
        if not all(answer.done() for answer in self._pending.values()):
            if now - self._looked_at > LOST_AFTER_S:
                self._pending, self._admin = {}, None  # The next request has another client.
                self._forget()
            return
        answers, self._pending = self._pending, {}
        if any(answer.exception() is not None for answer in answers.values()):
            self._forget()
        elif self._of_group:
            self._take_group(answers[self._group].result(), now)
        else:
            self._take_ends({(at.topic, at.partition): answer.result().offset for at, answer in answers.items()})
            if self._asks_group:
                self._of_group = True
                self._send(lambda: self._admin.describe_consumer_groups([self._group], request_timeout=REQUEST_S))

    def _forget(self) -> None:
        """No broker answers: the time so far proves nothing."""
        self._free_since = None
        for wait in self._waits.values():
            wait.behind_since = None

    def _take_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        for place, end in ends.items():
            wait = self._waits.get(place)
            if wait is None or self._polled_s - wait.since < IDLE_S:
                continue
            if end <= wait.reached:
                wait.behind_since = None
            elif wait.behind_since is None:
                wait.behind_since = self._polled_s

    def _take_group(self, group: Any, now: float) -> None:
        if self._without_since is None:
            return
        assigned = [
            {(place.topic, place.partition) for place in member.assignment.topic_partitions}
            for member in group.members
            if member.assignment is not None
        ]
        if self._is_spare(assigned):
            self._free_since = None
        elif self._free_since is None:
            self._free_since = now + (REBALANCED_WITHIN_S if group.state in REBALANCING else SETTLED_WITHIN_S)

    def _is_spare(self, assigned: Collection[Collection[TopicPartition]]) -> bool:
        """Whether the other members have all partitions, one each: with more the group would share them."""
        wanted = {(topic, number) for topic, size in self.sizes.items() for number in range(size)}
        taken = {place for places in assigned for place in places}
        return wanted <= taken and all(len(places) <= 1 for places in assigned)
