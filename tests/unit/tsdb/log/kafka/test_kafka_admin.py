"""Topic administration whose requests get no answer, with an admin client that never gives one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tsdb.log.interface import META
from tsdb.log.kafka.admin import KafkaTopics
from tsdb.log.settings import LogSettings
from tsdb.log.topics import TopicAdmin, topic_specs
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable

SPEC = topic_specs(1, replication=1)[0]


class SilentAdmin:
    """Every request has a future that is never done."""

    def __getattr__(self, name: str) -> Callable[..., dict[str, Future[Any]]]:
        return lambda *_, **__: {META: Future(), SPEC.name: Future()}


@pytest.mark.parametrize(
    "call",
    [
        lambda topics: topics.describe(META),
        lambda topics: topics.create(SPEC),
        lambda topics: topics.delete(META),
        lambda topics: topics.trim(META, {0: 5}),
    ],
    ids=["describe", "create", "delete", "trim"],
)
def test_a_request_without_an_answer_has_a_bound(call: Callable[[TopicAdmin], object]) -> None:
    topics = KafkaTopics("127.0.0.1:1", "", LogSettings(request_timeout_s=0.05), ManualClock(), grace_s=0.0)
    topics._admin = cast(AdminClient, SilentAdmin())
    with pytest.raises(Unavailable) as late:
        call(topics)
    assert late.value.reason == "timeout"


class LosingAdmin:
    """The answer to the first request is lost; the next ones get `then`."""

    def __init__(self, then: int | None) -> None:
        self._codes = [KafkaError._DESTROY_BROKER, then]
        self.requests = 0

    def create_topics(self, *_: object, **__: object) -> dict[str, Future[None]]:
        answer: Future[None] = Future()
        code = self._codes[min(self.requests, 1)]
        self.requests += 1
        if code is None:
            answer.set_result(None)
        else:
            answer.set_exception(KafkaException(KafkaError(code)))
        return {SPEC.name: answer}


@pytest.mark.parametrize("then", [None, KafkaError.TOPIC_ALREADY_EXISTS])
def test_a_topic_is_requested_again_when_the_client_dropped_the_request(
    then: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = KafkaTopics("127.0.0.1:1", "", LogSettings(), ManualClock())
    admin = LosingAdmin(then)
    topics._admin = cast(AdminClient, admin)
    waits: list[str] = []
    monkeypatch.setattr(topics, "_wait", lambda topic, leaders: waits.append(topic))
    assert topics.create(SPEC)
    assert (admin.requests, waits) == (2, [SPEC.name])


def test_a_request_that_is_dropped_again_is_an_error() -> None:
    topics = KafkaTopics("127.0.0.1:1", "", LogSettings(), ManualClock())
    topics._admin = cast(AdminClient, LosingAdmin(KafkaError._DESTROY_BROKER))
    with pytest.raises(Unavailable):
        topics.create(SPEC)
