"""Topic ids of a running consumer: records are confirmed by answers that are young enough; another id ends it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from support.consumer.topic_ids import FakeTopicAdmin
from tsdb.parallel_consumer import ConsumerError, TopicRecreated
from tsdb.parallel_consumer.kafka.incarnations import CHECK_EVERY_S, GONE_AFTER_S, Incarnations
from tsdb.parallel_consumer.testing import VirtualClock

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "fetch.error.backoff.ms": 500}
FRESH_S = 0.4


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def watching(admin: FakeTopicAdmin, clock: VirtualClock, *names: str, **ids: str) -> Incarnations:
    found = Incarnations(CONFIG, names or list(ids), clock=clock, admin=admin)
    found.ids = dict(ids)
    return found


def test_an_answer_confirms_for_less_than_the_backoff_of_a_fetch(clock: VirtualClock) -> None:
    admin = FakeTopicAdmin(orders="one")
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
    admin = FakeTopicAdmin(orders="one", bills="two")
    topics = watching(admin, clock, orders="one", bills="two")
    assert topics.confirm(0.0)
    admin.answers["orders"] = "another"
    clock.advance(FRESH_S)
    with pytest.raises(TopicRecreated, match=r"topic orders was deleted and made again .* was one and is another"):
        topics.confirm(0.0)
    assert topics.changed == {"orders"}


def test_an_idle_consumer_notices_another_id(clock: VirtualClock) -> None:
    admin = FakeTopicAdmin(orders="one")
    topics = watching(admin, clock, orders="one")
    topics.check(reading=False)
    admin.answers["orders"] = "another"
    clock.advance(CHECK_EVERY_S)
    topics.check(reading=False)
    with pytest.raises(TopicRecreated):
        topics.check(reading=False)


def test_an_answer_to_an_earlier_assignment_says_nothing_about_the_next(clock: VirtualClock) -> None:
    admin = FakeTopicAdmin(orders="one")
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
    admin = FakeTopicAdmin(orders=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
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
    admin = FakeTopicAdmin(orders=KafkaError(KafkaError._TRANSPORT))
    topics = watching(admin, clock, orders="one")
    for _ in range(20):
        assert not topics.confirm(0.0)
        clock.advance(GONE_AFTER_S)
    admin.answers["orders"] = "one"
    clock.advance(CHECK_EVERY_S)
    assert topics.confirm(0.0)
