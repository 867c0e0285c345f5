"""An admin client of the client library that answers with topic ids."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection


@dataclass
class Described:
    topic_id: str


class FakeTopicAdmin:
    """Answers at once by topic; topics in `silent` are never answered."""

    def __init__(self, **answers: str | KafkaError) -> None:
        self.answers = dict(answers)
        self.silent: set[str] = set()
        self.requests = 0

    def describe_topics(self, topics: TopicCollection, *, request_timeout: float) -> dict[str, Future[Any]]:
        self.requests += 1
        found: dict[str, Future[Any]] = {name: Future() for name in topics.topic_names}
        for name, future in found.items():
            answer = self.answers[name]
            if name in self.silent:
                continue
            if isinstance(answer, KafkaError):
                future.set_exception(KafkaException(answer))
            else:
                future.set_result(Described(answer))
        return found
