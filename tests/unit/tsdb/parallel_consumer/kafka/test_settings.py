"""Settings that contradict the consumer are refused by name before any connection; starts are parsed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tsdb.parallel_consumer import (
    Action,
    ConsumerMetrics,
    ErrorPolicy,
    InvalidConfig,
    Options,
    ParallelConsumer,
    Source,
    ThreadExecutor,
)
from tsdb.parallel_consumer.consume import consume
from tsdb.parallel_consumer.kafka import KafkaProducer, KafkaSource, TransactionalSource
from tsdb.parallel_consumer.kafka.settings import connection_settings, consumer_settings
from tsdb.parallel_consumer.kafka.start import StartRule
from tsdb.parallel_consumer.registry import RegistryMetrics, RegistryOptions, RegistrySource

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
        ({"fetch.error.backoff.ms": 20}, "earliest", "fetch.error.backoff.ms=20 is refused: at least 100"),
        ({"heartbeat.interval.ms": 45_000}, "earliest", "heartbeat.interval.ms=45000 is refused: it is above session"),
        ({"session.timeout.ms": 2_000}, "earliest", "heartbeat.interval.ms=3000 is refused"),
        ({"max.poll.interval.ms": 30_000}, "earliest", "session.timeout.ms=45000 is refused: it is above max.poll"),
        ({"session.timeout.ms": 400_000}, "earliest", "session.timeout.ms=400000 is refused: it is above max.poll"),
        ({"max.poll.interval.ms": "soon"}, "earliest", "max.poll.interval.ms=soon is refused: it is a whole number"),
        ({"group.id": ""}, "earliest", "group.id is missing"),
        ({"bootstrap.servers": ""}, "earliest", "bootstrap.servers is missing"),
        ({}, "newest", "start='newest' is no start"),
        ({}, True, "start=True is no start"),
        ({}, 1_700_000_000, "in seconds?"),
        ({}, datetime(2026, 1, 2), "has no time zone"),
    ],
)
def test_a_contradicting_setting_is_refused_by_name(settings: dict[str, object], start: Any, words: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        KafkaSource({**MEMBER, **settings}, ["orders"], start=start)
    assert words in refused.value.message
    assert refused.value.reason == "setting"


def plain(settings: dict[str, object]) -> Source:
    return KafkaSource(settings, ["orders"])


def transactional(settings: dict[str, object]) -> Source:
    return TransactionalSource(KafkaSource(settings, ["orders"]), {**BROKERS, "transactional.id": "one"})


def registry(settings: dict[str, object]) -> Source:
    metrics = RegistryMetrics(CollectorRegistry())
    return RegistrySource(plain(settings), Refusing(), RegistryOptions("orders.wait"), metrics=metrics)


class Refusing:
    def send(self, record: object, on_sent: object) -> None: ...


@pytest.mark.parametrize("source_of", [plain, transactional, registry])
@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        ({}, {"drain_s": 301.0}, "drain_s=301 is refused"),
        ({}, {"rebalance_drain_s": 300.0}, "rebalance_drain_s=300 is refused"),
        ({"max.poll.interval.ms": 50_000}, {"drain_s": 60.0}, "max.poll.interval.ms=50000; lower drain_s below 50"),
        ({"max.poll.interval.ms": "50000"}, {"rebalance_drain_s": 60.0}, "max.poll.interval.ms=50000"),
        ({"max.poll.interval.ms": 10_000, "session.timeout.ms": 6_000}, {}, "drain_s=20 is refused"),
        ({"max.poll.interval.ms": 10_000, "group.protocol": "consumer"}, {}, "drain_s=20 is refused"),
    ],
)
def test_a_drain_above_the_poll_interval_is_refused_at_the_start(
    source_of: Callable[[dict[str, object]], Source], settings: dict[str, object], options: dict[str, Any], words: str
) -> None:
    source = source_of({**MEMBER, **settings})
    with pytest.raises(InvalidConfig) as refused:
        ParallelConsumer(
            source,
            ThreadExecutor(print, 1),
            policy=ErrorPolicy(default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None),
            options=Options(**options),
            metrics=ConsumerMetrics(CollectorRegistry()),
        )
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
def test_an_agreeing_setting_is_accepted_and_required_ones_are_set(settings: dict[str, object], start: Any) -> None:
    KafkaSource({**MEMBER, **settings}, ["orders"], start=start)
    made = consumer_settings({**MEMBER, **settings}, StartRule.of(start))
    assert made["enable.auto.commit"] is made["enable.auto.offset.store"] is False
    assert made["auto.offset.reset"] == "error"
    assert ("partition.assignment.strategy" in made) is (settings.get("group.protocol") != "consumer")


def test_a_start_time_is_utc_in_any_time_zone() -> None:
    rule = StartRule.of(datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))))
    assert rule == StartRule.of(1_767_315_600_000)
    assert str(rule) == "2026-01-02T01:00:00.000+00:00"


@pytest.mark.parametrize("topics", [[], [""], ["orders", "^(orders"]])
def test_invalid_topics_are_refused(topics: list[str]) -> None:
    with pytest.raises(InvalidConfig, match="topic"):
        KafkaSource(MEMBER, topics)


@pytest.mark.parametrize("acks", [0, 1, "1"])
def test_a_producer_with_weak_acks_is_refused(acks: object) -> None:
    with pytest.raises(InvalidConfig, match=f"acks={acks} is refused"):
        KafkaProducer({**BROKERS, "acks": acks})


def test_an_unknown_setting_is_refused_by_name() -> None:
    source = KafkaSource({**MEMBER, "no.such.setting": 1}, ["orders"])
    with pytest.raises(InvalidConfig, match=r"no\.such\.setting"):
        source.start(None)  # type: ignore[arg-type]  # It does not come so far.
    with pytest.raises(InvalidConfig, match=r"no\.such\.setting"):
        KafkaProducer({**BROKERS, "no.such.setting": 1})


def test_connection_settings_are_valid_for_every_client() -> None:
    given = {**MEMBER, "sasl.username": "u", "enable.ssl.certificate.verification": True, "fetch.min.bytes": 1}
    settings_of_connection = connection_settings(given)
    assert {
        "bootstrap.servers",
        "sasl.username",
        "enable.ssl.certificate.verification",
    } <= settings_of_connection.keys()
    assert not {"group.id", "fetch.min.bytes"} & settings_of_connection.keys()


def test_consume_accepts_a_start_and_refuses_invalid_settings() -> None:
    with pytest.raises(InvalidConfig, match=r"enable\.auto\.commit"):
        consume({**MEMBER, "enable.auto.commit": True}, ["orders"], print)
    with pytest.raises(InvalidConfig, match="no start"):
        consume(MEMBER, ["orders"], print, start="newest")


@pytest.mark.parametrize(
    ("topics", "dead_letter_topic", "words"),
    [
        (["^orders"], "", "dead_letter_topic is missing"),
        (["^orders"], "orders.dlq", "is among the topics that are read"),
        (["orders", "spoilt"], "spoilt", "is among the topics that are read"),
    ],
)
def test_consuming_the_dead_letter_topic_is_refused(topics: list[str], dead_letter_topic: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        consume(MEMBER, topics, print, dead_letter_topic=dead_letter_topic)
