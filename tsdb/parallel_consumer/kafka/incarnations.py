"""Incarnations: detects that a topic was deleted and created again while it is read.

The new topic has the same name, and mostly has the next offset to read, so a consumer that continues would skip its
first records. The client library goes on with the new topic by itself, but only after a fetch of the old topic id has
failed and fetch.error.backoff.ms have passed. So records that were consumed within that time of the last confirmation
belong to the topic that was assigned; other records wait for a new confirmation. One thread.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaException, TopicCollection

from tsdb.kafka_clients import new_admin
from tsdb.parallel_consumer.clock import Clock, SystemClock
from tsdb.parallel_consumer.errors import ConsumerError, TopicRecreated
from tsdb.parallel_consumer.kafka.errors import TOPIC_GONE, passes, to_error
from tsdb.parallel_consumer.kafka.library_log import with_logger
from tsdb.parallel_consumer.kafka.settings import FETCH_BACKOFF, connection_settings

CHECK_EVERY_S = 1.0  # Interval of checks while nothing is read.
QUERY_S = 5.0
LOST_AFTER_S = 2 * QUERY_S  # An answer that is later than its own timeout will never come.
GONE_AFTER_S = 5.0  # A broker that has just started may not know a topic yet; a deleted one stays unknown.


class Incarnations:
    """config: settings of the consumer. names: topics that must exist; topics of a pattern may be deleted.

    ids: topic ids by name, changed by the owner as topics are assigned and removed. changed: topics known to be others
    now, or to be gone. failure: the error that names the first of them.

    """

    def __init__(
        self, config: Mapping[str, object], names: Collection[str], *, clock: Clock | None = None, admin: Any = None
    ) -> None:
        self._settings: Any = with_logger(connection_settings(config))
        self._names = names
        self._fresh_s = 0.8 * int(str(config[FETCH_BACKOFF])) / 1000
        self._clock = clock or SystemClock()
        self._admin: Any = admin  # The client is made with the first request.
        self._confirmed_at: dict[str, float] = {}  # Time of the request that got the last good answer, by topic.
        self._unknown_since: dict[str, float] = {}
        self._pending: dict[str, Future[Any]] = {}
        self._pending_ids: dict[str, str] = {}
        self._requested_at = -math.inf
        self.ids: dict[str, str] = {}
        self.changed: set[str] = set()
        self.failure: ConsumerError | None = None

    def look(self, *, reading: bool) -> None:
        """Take answers, and send a request when one is due; does not wait.

        reading: ask often enough that records rarely wait for a confirmation.
        """
        self._settle()
        if self._pending and self._clock.monotonic() - self._requested_at > LOST_AFTER_S:
            self._request()
        every_s = min(CHECK_EVERY_S, 0.75 * self._fresh_s) if reading else CHECK_EVERY_S
        if self.ids and self._clock.monotonic() - self._requested_at >= every_s:
            self._request()

    def check(self, *, reading: bool) -> None:
        """Does what `look` does. Raises TopicRecreated, or ConsumerError (topic_gone, denied, kafka), once an answer
        shows it."""
        self.look(reading=reading)
        if self.failure is not None:
            raise self.failure

    def confirm(self, wait_s: float) -> bool:
        """Whether all records consumed before this call are of the assigned topics. False: no answer within wait_s.

        Raises as check.
        """
        give_up_at = self._clock.monotonic() + wait_s
        # Two tries, because a pending answer may belong to an older request. A request sent now gives a certain answer.
        for _ in range(2):
            self.check(reading=True)
            if self._fresh():
                return True
            self._request()
            wait(self._pending.values(), max(0.0, give_up_at - self._clock.monotonic()))
        self.check(reading=True)
        return self._fresh()

    def _fresh(self) -> bool:
        now = self._clock.monotonic()
        return all(now - self._confirmed_at.get(topic, -math.inf) < self._fresh_s for topic in self.ids)

    def _request(self) -> None:
        if self._pending:
            if self._clock.monotonic() - self._requested_at <= LOST_AFTER_S:
                return
            self._admin = None  # The answer will never come, so another client sends a new request.
        if self._admin is None:
            self._admin = new_admin(self._settings)
        self._requested_at = self._clock.monotonic()
        self._pending_ids = dict(self.ids)
        self._pending = dict(self._admin.describe_topics(TopicCollection(sorted(self.ids)), request_timeout=QUERY_S))

    def _settle(self) -> None:
        if not self._pending or not all(future.done() for future in self._pending.values()):
            return
        answers, self._pending = self._pending, {}
        for topic, answer in answers.items():
            # Otherwise the topic was removed or assigned again since the request.
            if self.ids.get(topic) == self._pending_ids[topic]:
                self._take(topic, answer)

    def _take(self, topic: str, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is None:
            self._unknown_since.pop(topic, None)
            found = str(answer.result().topic_id)
            if found == self.ids[topic]:
                self._confirmed_at[topic] = self._requested_at
            else:
                self._refuse(topic, recreated(topic, self.ids[topic], found))
        elif not isinstance(error, KafkaException):
            raise error
        elif error.args[0].code() in TOPIC_GONE:
            since = self._unknown_since.setdefault(topic, self._requested_at)
            if topic in self._names and self._requested_at - since >= GONE_AFTER_S:
                self._refuse(topic, to_error(error.args[0], f"topic {topic}"))
        elif not passes(error.args[0]):
            self._refuse(topic, to_error(error.args[0], f"topic {topic}"))

    def _refuse(self, topic: str, error: ConsumerError) -> None:
        self.changed.add(topic)
        self.failure = self.failure or error


def recreated(topic: str, was: str, found: str) -> TopicRecreated:
    """The error of a topic that has another id than before."""
    return TopicRecreated(
        f"topic {topic} was deleted and made again while it was read: its id was {was} and is {found}. Offsets of the"
        " old topic mean nothing in the new one: set the group's offsets (kafka-consumer-groups --reset-offsets"
        " --to-earliest reads it whole), then start again"
    )
