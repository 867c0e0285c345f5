"""Topic guard: checks that a topic is still the incarnation seen first.

A re-created topic has the same name, and offsets of the old one may exist in the new one. librdkafka (2.16) continues
with the new one by itself, but only after a fetch failed for the old id and FETCH_ERROR_BACKOFF_MS passed. So records
belong to the known topic if the last confirmation was younger than that when they were consumed. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented there, not marked as exported
    AdminClient,
    TopicDescription,
)

from tsdb.log.checks import check_partition, wrong_topic
from tsdb.log.kafka.clients import GRACE_S, Renewed, answer_of
from tsdb.log.kafka.config import FETCH_ERROR_BACKOFF_MS
from tsdb.log.kafka.errors import to_error, translate_kafka_errors
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable, WrongTopic
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import unattended

FRESH_S = 0.8 * FETCH_ERROR_BACKOFF_MS / 1000
CHECK_EVERY_S = 1.0  # How soon an idle user of the topic learns of a change while nothing is read.
DESCRIBE_TIMEOUT_S = 3.0
LOST_AFTER_S = DESCRIBE_TIMEOUT_S + GRACE_S  # An answer that is later than its own timeout will never come.
GONE_AFTER_S = 2.0  # A broker that has just started may not know a topic yet; a deleted one stays unknown.

log = get_logger(__name__)


@dataclass(slots=True)
class _Topic:
    topic_id: str
    partitions: int
    confirmed_at: float  # Monotonic time of the request that got the last good answer.
    failing_since: float | None = None
    unknown_since: float | None = None
    pending: _Request | None = None
    error: WrongTopic | None = None


@dataclass(slots=True, eq=False)
class _Request:
    admin: AdminClient
    sent_at: float  # Monotonic time.
    settled: Future[None]  # Set once the state of the topic contains the answer.


class TopicGuard:
    """Topics are named without the prefix; `kafka_name` gives the broker's name."""

    def __init__(
        self, admin: Renewed[AdminClient], kafka_name: Callable[[str], str], clock: Clock, timeout_s: float
    ) -> None:
        self._admin = admin
        self._kafka_name = kafka_name
        self._clock = clock
        self._timeout_s = timeout_s
        self._lock = threading.Lock()  # Guards the fields below; no broker call is waited for under it.
        self._topics: dict[str, _Topic] = {}

    def topic_id(self, topic: str) -> str:
        """Id that the topic had first. The first call sends a request to the broker."""
        return self._known(topic).topic_id

    def partitions(self, topic: str) -> int:
        """Number of partitions that the topic had first."""
        return self._known(topic).partitions

    def check_partition(self, topic: str, partition: int) -> None:
        """Raises InvalidRequest (unknown_partition)."""
        check_partition(topic, partition, self._known(topic).partitions)

    def check(self, topic: str) -> None:
        """Raises WrongTopic once a check found it. Checks in the background every CHECK_EVERY_S; does not wait."""
        known = self._known(topic)
        if known.error is not None:
            raise known.error
        if self._clock.monotonic() - known.confirmed_at > CHECK_EVERY_S:
            self._request(topic, known)

    def confirm(self, topic: str, wait_s: float) -> bool:
        """Whether all records consumed before this call belong to the known topic. False: no answer within wait_s.

        Raises WrongTopic (topic_recreated, topic_deleted).
        """
        known = self._known(topic)
        give_up_at = self._clock.monotonic() + wait_s
        # Two tries, because a pending answer may belong to an older request. A request sent now gives a certain answer.
        for _ in range(2):
            if self._is_fresh(known):
                return True
            wait_for([self._request(topic, known)], max(0.0, give_up_at - self._clock.monotonic()))
        return self._is_fresh(known)

    @property
    def unavailable_since_monotonic(self) -> float | None:
        """Monotonic time since which requests fail, over all known topics; None while the last one was answered."""
        with self._lock:
            failing = [topic.failing_since for topic in self._topics.values() if topic.failing_since is not None]
        return min(failing, default=None)

    def any_topic(self) -> str | None:
        """A topic that this process has used; None before the first one."""
        return next(iter(list(self._topics)), None)

    def _known(self, topic: str) -> _Topic:
        known = self._topics.get(topic)
        return known if known is not None else self._describe_first(topic)

    def _is_fresh(self, known: _Topic) -> bool:
        if known.error is not None:
            raise known.error
        return self._clock.monotonic() - known.confirmed_at < FRESH_S

    def _describe_first(self, topic: str) -> _Topic:
        requested_at = self._clock.monotonic()
        admin, place = self._admin.get(), f"topic {topic}"
        try:
            with translate_kafka_errors(place):
                answer = self._describe(admin, topic, self._timeout_s)
            described = answer_of(answer, self._timeout_s + GRACE_S, place)
        except Unavailable as error:
            self._admin.failed(admin, hung=error.reason == "timeout")
            raise
        self._admin.answered(admin)
        with self._lock:
            fresh = _Topic(str(described.topic_id), len(described.partitions), requested_at)
            return self._topics.setdefault(topic, fresh)

    def _describe(self, admin: AdminClient, topic: str, timeout_s: float) -> Future[TopicDescription]:
        name = self._kafka_name(topic)
        futures = admin.describe_topics(TopicCollection([name]), request_timeout=timeout_s)
        future: Future[TopicDescription] = futures[name]
        return future

    def _request(self, topic: str, known: _Topic) -> Future[None]:
        """Send a request in the background, one at a time. An answer that does not come is a failure."""
        now = self._clock.monotonic()
        with self._lock:
            pending = known.pending
            if pending is not None:
                if now - pending.sent_at <= LOST_AFTER_S:
                    return pending.settled
                known.pending, known.failing_since = None, known.failing_since or pending.sent_at
        if pending is not None:
            self._admin.failed(pending.admin, hung=True)
            pending.settled.set_result(None)
        request = _Request(self._admin.get(), now, Future())
        with self._lock:
            if known.pending is not None:
                return known.pending.settled
            known.pending = request
        # Outside the lock: the library may answer within the call.
        answered = partial(self._on_answer, topic, known, request)
        try:
            future = self._describe(request.admin, topic, DESCRIBE_TIMEOUT_S)
        except KafkaException as error:
            future = Future()
            future.set_exception(error)
        future.add_done_callback(unattended(answered, "log-topics"))
        return request.settled

    def _on_answer(self, topic: str, known: _Topic, request: _Request, answer: Future[TopicDescription]) -> None:
        error = answer.exception()
        with self._lock:
            if known.pending is not request:
                return  # The request was given up before.
            known.pending = None
            if error is None:
                self._compare_id(topic, known, request.sent_at, answer.result())
                answered = True
            elif isinstance(error, KafkaException):
                answered = self._failed(topic, known, request.sent_at, error.args[0])
            else:
                raise error
        if answered:
            self._admin.answered(request.admin)
        else:
            self._admin.failed(request.admin)
        request.settled.set_result(None)

    def _compare_id(self, topic: str, known: _Topic, requested_at: float, described: TopicDescription) -> None:
        known.failing_since = known.unknown_since = None
        if str(described.topic_id) == known.topic_id:
            known.confirmed_at = requested_at
            return
        self._refuse(known, wrong_topic(topic, known.topic_id, str(described.topic_id)))

    def _failed(self, topic: str, known: _Topic, requested_at: float, error: KafkaError) -> bool:
        """Whether a broker answered."""
        if isinstance(to_error(error, topic), WrongTopic):
            known.failing_since = None
            known.unknown_since = known.unknown_since or requested_at
            if requested_at - known.unknown_since >= GONE_AFTER_S:
                self._refuse(known, wrong_topic(topic, known.topic_id, None))
            return True
        known.failing_since = known.failing_since or requested_at
        return False

    def _refuse(self, known: _Topic, error: WrongTopic) -> None:
        if known.error is None:
            log.error("topic is not the one we know", reason=error.reason, error=error.message)
        known.error = error
