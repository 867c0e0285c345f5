"""Topic administration whose requests get no answer, with an admin client that never gives one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest
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
