"""TopicLookup: queries topics until the brokers answer, without blocking the caller; logs long waits.

Uses an admin client, which never creates a topic by a lookup, as consumers and producers do where brokers allow it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tsdb.kafka_clients import new_admin
from tsdb.parallel_consumer.clock import Clock, SystemClock
from tsdb.parallel_consumer.kafka.errors import is_denied, passes, to_error
from tsdb.parallel_consumer.kafka.library_log import with_logger
from tsdb.parallel_consumer.kafka.settings import connection_settings
from tsdb.parallel_consumer.limited_log import LimitedLog, one_line

QUERY_S = 5.0
WARN_AFTER_S = 2.0
ERROR_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """id: identifies this incarnation of the topic."""

    id: str
    partitions: int


class TopicLookup:
    """config: settings of the client library. names: topics to look up; without any it only waits for an answer of the
    cluster. One thread."""

    def __init__(self, config: Mapping[str, object], names: Collection[str], *, clock: Clock | None = None) -> None:
        settings = with_logger(connection_settings(config))
        self._error_callback = settings.get("error_cb")
        self._settings: Any = {**settings, "error_cb": self._on_error}
        self._names = list(names)
        self._clock = clock or SystemClock()
        self._log = LimitedLog(self._clock)
        self._admin: AdminClient | None = None
        self._queries: dict[str, Future[Any]] = {}
        self._since: float | None = None
        self._error: KafkaError | None = None  # Last error reported by the library while it retries.

    def answer(self, timeout_s: float) -> dict[str, TopicFacts] | None:
        """Facts of all topics; None while no broker answers. Waits up to timeout_s.

        Raises ConsumerError with the topic's name: topic_gone (no such topic), denied, kafka.
        """
        if not self._queries:
            self._query()
        now = self._clock.monotonic()
        self._since = now if self._since is None else self._since
        assert self._admin is not None, "query without a client"
        self._admin.poll(0)  # Serves the library's error callback.
        if self._error is not None and is_denied(self._error):
            raise to_error(self._error, self._subject())
        try:
            found = {name: self._facts(name, future, timeout_s) for name, future in self._queries.items()}
        except TimeoutError:
            pass
        except KafkaException as error:
            if not passes(error.args[0]):
                raise
            self._queries = {}
        else:
            self._admin, self._queries = None, {}
            found.pop("", None)
            return found
        self._log_line(now - self._since)
        return None

    def answer_within(self, timeout_s: float) -> dict[str, TopicFacts]:
        """Facts of all topics, now. Raises KafkaException (timed out) when no broker answers."""
        found = self.answer(timeout_s)
        if found is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return found

    def create(self, name: str) -> None:
        """Create the topic with the brokers' defaults; an existing topic stays. Raises ConsumerError."""
        admin = new_admin(self._settings)
        try:
            admin.create_topics([NewTopic(name)], request_timeout=QUERY_S)[name].result(2 * QUERY_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise to_error(error.args[0], f"topic {name} cannot be created") from error

    def _query(self) -> None:
        if self._admin is None:
            self._admin = new_admin(self._settings)
        if self._names:
            self._queries = dict(self._admin.describe_topics(TopicCollection(self._names), request_timeout=QUERY_S))
        else:
            self._queries = {"": self._admin.describe_cluster(request_timeout=QUERY_S)}

    @staticmethod
    def _facts(name: str, future: Future[Any], timeout_s: float) -> TopicFacts:
        try:
            answer = future.result(timeout_s)
        except KafkaException as error:
            if passes(error.args[0]):
                raise
            raise to_error(error.args[0], f"topic {name}") from error
        return TopicFacts(str(answer.topic_id), len(answer.partitions)) if name else TopicFacts("", 0)

    def _log_line(self, waited_s: float) -> None:
        if waited_s >= WARN_AFTER_S:
            brokers = self._settings.get("bootstrap.servers") or self._settings.get("metadata.broker.list")
            why = "" if self._error is None else f": {one_line(self._error.str(), ERROR_CHARS_MAX)}"
            text = "no broker of %s has answered for %.0f s; waiting, for %s%s"
            self._log.log(logging.WARNING, "no_broker", None, text, brokers, waited_s, self._subject(), why)

    def _subject(self) -> str:
        return f"topic {', '.join(self._names)}" if self._names else "the topics of a pattern"

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # This error follows the one with the cause.
            self._error = error
        if callable(self._error_callback):
            self._error_callback(error)
