"""A store over a broker that freezes and dies: it says so, answers nothing stale, and goes on by itself afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from stack.kafka import KafkaCluster
from support.servers.logs import LogFactory, wait_until
from support.servers.node import Gateway, Node, label_set, refused
from tsdb.client import ReadOptions
from tsdb.log.settings import LogSettings
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.v1 import common_pb2

SETTINGS = LogSettings(request_timeout_s=3.0, delivery_timeout_s=3.0)
LABELS = [label_set(number) for number in range(10)]


def _freeze(broker: KafkaCluster) -> Callable[[], None]:
    broker.suspend_broker(0)
    return lambda: broker.resume_broker(0)


def _kill(broker: KafkaCluster) -> Callable[[], None]:
    broker.kill_broker(0)
    return lambda: broker.start_broker(0)


# A killed broker is seen through a gateway and a store in tests/fault/test_kafka_outage.py.
@pytest.mark.parametrize("fault", [_freeze, pytest.param(_kill, marks=pytest.mark.soak)], ids=["frozen", "killed"])
def test_a_broker_away_in_the_middle_shows_in_readiness_and_the_store_recovers(
    broker: KafkaCluster, fault: Callable[[KafkaCluster], Callable[[], None]]
) -> None:
    with LogFactory(f"kafka://{broker.bootstrap}", f"s{uuid.uuid4().hex[:12]}.") as factory:
        factory.create(3)
        gateway = Gateway(factory.open(SETTINGS))
        now_ms = gateway.clock.now_ms()
        gateway.write(LABELS, [now_ms] * 10, range(10))
        with Node(factory.open(SETTINGS)).wait_ready_on_entry() as node:
            repair = fault(broker)
            try:
                node.wait_reason("high_watermark_old")
                with refused(Unavailable, "high_watermark_old"):
                    node.ask("m", now_ms - 1000, now_ms + 1000)
                assert node.store.stalled() == ""
            finally:
                repair()
            broker.wait_ready()
            node.wait_ready()
            tokens: list[common_pb2.Token] = []

            def written() -> bool:
                try:
                    tokens[:] = gateway.write(LABELS, [now_ms + 1] * 10, range(10))
                except TsdbError:
                    return False
                return True

            wait_until(written)
            options = ReadOptions(after=tokens)
            result = node.client.select("m", now_ms - 1000, now_ms + 1000, options=options)
            assert result.samples == 20


def test_a_store_whose_broker_is_away_as_it_opens_waits_for_it(broker: KafkaCluster) -> None:
    with LogFactory(f"kafka://{broker.bootstrap}", f"s{uuid.uuid4().hex[:12]}.") as factory:
        factory.create(2)
        gateway = Gateway(factory.open(SETTINGS))
        now_ms = gateway.clock.now_ms()
        gateway.write(LABELS, [now_ms] * 10, range(10))
        node = Node(factory.open(SETTINGS))
        repair = _kill(broker)
        try:
            with node:
                wait_until(lambda: node.reason() != "replaying")
                assert not node.status().readiness.ready
                repair()
                broker.wait_ready()
                node.wait_ready()
                assert node.client.select("m", now_ms, now_ms + 1).samples == 10
        finally:
            broker.wait_ready()
