"""Settings that contradict the consumer are refused by name before anything is connected; starts are parsed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tsdb.parallel_consumer import Misused
from tsdb.parallel_consumer.easy import consume
from tsdb.parallel_consumer.kafka import KafkaOutlet, KafkaSource
from tsdb.parallel_consumer.kafka.settings import connection_settings, consumer_settings
from tsdb.parallel_consumer.kafka.start import StartRule

BROKERS = {"bootstrap.servers": "127.0.0.1:1"}
MEMBER = {**BROKERS, "group.id": "billing"}
EARLIEST = StartRule.of("earliest")


@pytest.mark.parametrize(
    ("settings", "start", "words"),
    [
        ({"enable.auto.commit": True}, "earliest", "enable.auto.commit=True is refused: positions are committed once"),
        ({"enable.auto.commit": "true"}, "earliest", "enable.auto.commit=true"),
        ({"enable.auto.commit": "maybe"}, "earliest", "enable.auto.commit=maybe"),
        ({"auto.commit.enable": True}, "earliest", "auto.commit.enable=True"),
        ({"enable.auto.offset.store": True}, "earliest", "enable.auto.offset.store=True"),
        ({"enable.partition.eof": False}, "earliest", "enable.partition.eof=False"),
        ({"auto.offset.reset": "latest"}, "earliest", "auto.offset.reset=latest is refused: start=earliest decides"),
        ({"auto.offset.reset": "earliest"}, "latest", "auto.offset.reset=earliest is refused: start=latest decides"),
        ({"auto.offset.reset": "earliest"}, datetime(2026, 1, 2, tzinfo=UTC), "start=2026-01-02T00:00:00.000+00:00"),
        ({"auto.offset.reset": "none"}, "earliest", "auto.offset.reset=none"),
        ({"default.topic.config": {"auto.offset.reset": "latest"}}, "earliest", "auto.offset.reset=latest"),
        ({"partition.assignment.strategy": "range,roundrobin"}, "earliest", "cooperative-sticky"),
        ({"group.protocol": "share"}, "earliest", "group.protocol=share is refused: there are classic and consumer"),
        ({"group.protocol": "consumer", "session.timeout.ms": 6_000}, "earliest", "session.timeout.ms=6000"),
        ({"group.protocol": "consumer", "heartbeat.interval.ms": 1}, "earliest", "the brokers decide it"),
        (
            {"group.protocol": "consumer", "partition.assignment.strategy": "cooperative-sticky"},
            "earliest",
            "partition",
        ),
        ({"group.id": ""}, "earliest", "group.id is missing"),
        ({"bootstrap.servers": ""}, "earliest", "bootstrap.servers is missing"),
        ({}, "newest", "start='newest' is no start"),
        ({}, True, "start=True is no start"),
        ({}, 1_700_000_000, "in seconds?"),
        ({}, datetime(2026, 1, 2), "has no time zone"),
    ],
)
def test_a_setting_that_contradicts_the_consumer_is_refused_by_name(
    settings: dict[str, object], start: Any, words: str
) -> None:
    with pytest.raises(Misused) as refused:
        KafkaSource({**MEMBER, **settings}, ["orders"], start=start)
    assert words in refused.value.message
    assert refused.value.reason == "setting"


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({"enable.auto.commit": False, "enable.auto.offset.store": "false", "enable.partition.eof": True}, "earliest"),
        ({"auto.offset.reset": "earliest"}, "earliest"),
        ({"auto.offset.reset": "smallest"}, "earliest"),
        ({"auto.offset.reset": "latest"}, "latest"),
        ({"auto.offset.reset": "error"}, 1_700_000_000_000),
        ({"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 6_000}, "earliest"),
        ({"group.protocol": "consumer", "group.remote.assignor": "uniform"}, "earliest"),
    ],
)
def test_a_setting_that_says_the_same_is_taken_and_what_must_be_so_is(settings: dict[str, object], start: Any) -> None:
    KafkaSource({**MEMBER, **settings}, ["orders"], start=start)
    made = consumer_settings({**MEMBER, **settings}, StartRule.of(start))
    assert made["enable.auto.commit"] is made["enable.auto.offset.store"] is False
    assert made["auto.offset.reset"] == "error"
    assert ("partition.assignment.strategy" in made) is (settings.get("group.protocol") != "consumer")


def test_a_start_is_a_time_in_utc_whatever_its_zone() -> None:
    rule = StartRule.of(datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))))
    assert rule == StartRule.of(1_767_315_600_000)
    assert str(rule) == "2026-01-02T01:00:00.000+00:00"


@pytest.mark.parametrize("topics", [[], [""], ["orders", "^(orders"]])
def test_topics_that_are_none_are_refused(topics: list[str]) -> None:
    with pytest.raises(Misused, match="topic"):
        KafkaSource(MEMBER, topics)


@pytest.mark.parametrize("acks", [0, 1, "1"])
def test_an_outlet_that_could_lose_what_it_acknowledged_is_refused(acks: object) -> None:
    with pytest.raises(Misused, match=f"acks={acks} is refused"):
        KafkaOutlet({**BROKERS, "acks": acks})


def test_a_setting_that_the_library_does_not_know_is_refused_by_name() -> None:
    source = KafkaSource({**MEMBER, "no.such.setting": 1}, ["orders"])
    with pytest.raises(Misused, match=r"no\.such\.setting"):
        source.start(None)  # type: ignore[arg-type]  # It does not come so far.
    with pytest.raises(Misused, match=r"no\.such\.setting"):
        KafkaOutlet({**BROKERS, "no.such.setting": 1})


def test_settings_of_a_connection_are_those_that_every_client_takes() -> None:
    given = {**MEMBER, "sasl.username": "u", "enable.ssl.certificate.verification": True, "fetch.min.bytes": 1}
    kept = connection_settings(given)
    assert {"bootstrap.servers", "sasl.username", "enable.ssl.certificate.verification"} <= kept.keys()
    assert not {"group.id", "fetch.min.bytes"} & kept.keys()


def test_consume_takes_a_start_and_refuses_what_a_source_refuses() -> None:
    with pytest.raises(Misused, match=r"enable\.auto\.commit"):
        consume({**MEMBER, "enable.auto.commit": True}, ["orders"], print)
    with pytest.raises(Misused, match="no start"):
        consume(MEMBER, ["orders"], print, start="newest")


@pytest.mark.parametrize(
    ("topics", "dead_letter_topic", "words"),
    [
        (["^orders"], "", "dead_letter_topic is missing"),
        (["^orders"], "orders.dlq", "is among the topics that are read"),
        (["orders", "spoilt"], "spoilt", "is among the topics that are read"),
    ],
)
def test_a_consumer_that_would_read_its_own_dead_letters_is_refused(
    topics: list[str], dead_letter_topic: str, words: str
) -> None:
    with pytest.raises(Misused, match=words):
        consume(MEMBER, topics, print, dead_letter_topic=dead_letter_topic)
