"""The topic watch shows what the brokers state of the topics, and keeps its values while they are away."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.counters import sample
from support.fakes.stand_in import StandIn
from support.servers.logs import LogFactory
from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, METRICS
from tsdb.log.topic_watch import TopicWatch
from tsdb.log.topics import DAY_MS, ReplicaFaults, TopicAdmin, TopicState
from tsdb.model.errors import Unavailable
from tsdb.model.time_set import PRODUCTION

HOUR_S = 3600


class Brokers(StandIn):
    """Topics of an embedded log with settings and replicas as a test sets them. away: no broker answers."""

    def __init__(self, real: TopicAdmin) -> None:
        super().__init__(real)
        self.faults = ReplicaFaults()
        self.config: dict[str, str] = {}
        self.away = False

    def __exit__(self, *_: object) -> None:
        """Does nothing: each check opens and closes the same client."""

    def describe(self, topic: str) -> TopicState | None:
        if self.away:
            raise Unavailable("no broker answers", reason="brokers_away")
        state: TopicState | None = self._real.describe(topic)
        if state is None or topic != METRICS:
            return state
        return dataclasses.replace(state, faults=self.faults, config={**state.config, **self.config})


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[LogFactory]:
    with LogFactory(f"sqlite:///{tmp_path / 'log.db'}", "") as made:
        made.create(2)
        yield made


@pytest.fixture
def brokers(factory: LogFactory) -> Brokers:
    return Brokers(factory.topics())


@pytest.fixture
def watch(factory: LogFactory, brokers: Brokers) -> TopicWatch:
    return TopicWatch(factory.open(), lambda: brokers, PRODUCTION)


def faults(kind: str, topic: str = METRICS) -> float:
    return sample("tsdb_log_topic_replica_faults", topic=topic, kind=kind)


def test_replicas_that_are_not_in_sync_are_shown(watch: TopicWatch, brokers: Brokers) -> None:
    brokers.faults = ReplicaFaults(leaderless=1, under_min_isr=2, under_replicated=3)
    watch.look()
    assert [faults(kind) for kind in ("leaderless", "under_min_isr", "under_replicated")] == [1, 2, 3]
    assert faults("under_min_isr", CHUNKS) == 0
    brokers.faults = ReplicaFaults()
    watch.look()
    assert faults("under_min_isr") == 0


def test_retention_is_shown_beside_what_is_needed(watch: TopicWatch, brokers: Brokers) -> None:
    brokers.config = {"retention.ms": str(DAY_MS)}
    watch.look()
    assert sample("tsdb_log_topic_retention_seconds", topic=METRICS) == 24 * HOUR_S
    # Hold 10 h, window 4 h, grace 5 min, spread 2 h, and a day.
    assert sample("tsdb_log_topic_retention_needed_seconds", topic=METRICS) == 40 * HOUR_S + 300
    assert sample("tsdb_log_topic_retention_needed_seconds", topic=CHUNKS) == 60 * 24 * HOUR_S
    brokers.config = {"retention.ms": "-1"}
    watch.look()
    assert sample("tsdb_log_topic_retention_seconds", topic=METRICS) == float("inf")


def test_a_setting_that_was_changed_is_counted(watch: TopicWatch, brokers: Brokers) -> None:
    watch.look()
    assert sample("tsdb_log_topic_settings_differing", topic=METRICS) == 0
    brokers.config = {"cleanup.policy": "compact", "unclean.leader.election.enable": "true"}
    watch.look()
    assert sample("tsdb_log_topic_settings_differing", topic=METRICS) == 2


def test_dead_letters_are_counted_until_they_are_dropped(watch: TopicWatch, factory: LogFactory) -> None:
    log = factory.open()
    for partition in (0, 1, 1):
        log.append_sync(CHUNKS_DLQ, partition, b"letter")
    watch.look()
    assert sample("tsdb_log_dead_letters") == 3
    factory.topics().trim(CHUNKS_DLQ, {1: 1})
    watch.look()
    assert sample("tsdb_log_dead_letters") == 2


def test_a_look_that_fails_is_counted_and_keeps_the_values(watch: TopicWatch, brokers: Brokers) -> None:
    brokers.faults = ReplicaFaults(under_min_isr=2)
    watch.look()
    brokers.faults, brokers.away = ReplicaFaults(), True
    before = sample("tsdb_log_topic_look_failures_total", reason="brokers_away")
    watch.look()
    assert sample("tsdb_log_topic_look_failures_total", reason="brokers_away") == before + 1
    assert faults("under_min_isr") == 2
