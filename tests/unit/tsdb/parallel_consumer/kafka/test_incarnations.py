"""Topic ids of a running consumer: records are confirmed by answers that are young enough; another id ends it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from tsdb.parallel_consumer import ConsumerError, TopicRecreated
from tsdb.parallel_consumer.kafka.incarnations import CHECK_EVERY_S, GONE_AFTER_S, Incarnations
from tsdb.parallel_consumer.testing import VirtualClock

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "fetch.error.backoff.ms": 500}
FRESH_S = 0.4


@dataclass
class Described:
    topic_id: str


class FakeAdmin:
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


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def watching(admin: FakeAdmin, clock: VirtualClock, *names: str, **ids: str) -> Incarnations:
    found = Incarnations(CONFIG, names or list(ids), clock=clock, admin=admin)
    found.ids = dict(ids)
    return found


def test_an_answer_confirms_for_less_than_the_backoff_of_a_fetch(clock: VirtualClock) -> None:
    admin = FakeAdmin(orders="one")
    topics = watching(admin, clock, orders="one")
    assert topics.confirm(0.0)
    asked = admin.requests
    clock.advance(FRESH_S / 2)
    assert topics.confirm(0.0)
    assert admin.requests == asked
    clock.advance(FRESH_S)
    admin.silent = {"orders"}
    assert not topics.confirm(0.0)


def test_another_id_ends_the_consumer_before_its_records_are_confirmed(clock: VirtualClock) -> None:
    admin = FakeAdmin(orders="one", bills="two")
    topics = watching(admin, clock, orders="one", bills="two")
    assert topics.confirm(0.0)
    admin.answers["orders"] = "another"
    clock.advance(FRESH_S)
    with pytest.raises(TopicRecreated, match=r"topic orders was deleted and made again .* was one and is another"):
        topics.confirm(0.0)
    assert topics.changed == {"orders"}


def test_an_idle_consumer_notices_another_id(clock: VirtualClock) -> None:
    admin = FakeAdmin(orders="one")
    topics = watching(admin, clock, orders="one")
    topics.check(reading=False)
    admin.answers["orders"] = "another"
    clock.advance(CHECK_EVERY_S)
    topics.check(reading=False)
    with pytest.raises(TopicRecreated):
        topics.check(reading=False)


def test_an_answer_to_an_earlier_assignment_says_nothing_about_the_next(clock: VirtualClock) -> None:
    admin = FakeAdmin(orders="one")
    topics = watching(admin, clock, orders="one")
    topics.check(reading=False)
    topics.ids = {"orders": "two"}
    admin.answers["orders"] = "two"
    topics.check(reading=False)
    assert topics.confirm(0.0)


@pytest.mark.parametrize(("names", "ends"), [(("orders",), True), (("^ord.*",), False)])
def test_a_topic_that_stays_unknown_ends_the_consumer_unless_a_pattern_matched_it(
    clock: VirtualClock, names: tuple[str, ...], ends: bool
) -> None:
    admin = FakeAdmin(orders=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    topics = watching(admin, clock, *names, orders="one")
    for _ in range(2):
        assert not topics.confirm(0.0)
    clock.advance(GONE_AFTER_S)
    if ends:
        with pytest.raises(ConsumerError, match="topic orders") as gone:
            topics.confirm(0.0)
        assert gone.value.reason == "topic_gone"
    else:
        assert not topics.confirm(0.0)


def test_brokers_that_are_away_confirm_nothing_and_end_nothing(clock: VirtualClock) -> None:
    admin = FakeAdmin(orders=KafkaError(KafkaError._TRANSPORT))
    topics = watching(admin, clock, orders="one")
    for _ in range(20):
        assert not topics.confirm(0.0)
        clock.advance(GONE_AFTER_S)
    admin.answers["orders"] = "one"
    clock.advance(CHECK_EVERY_S)
    assert topics.confirm(0.0)
