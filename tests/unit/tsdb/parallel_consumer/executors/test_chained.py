"""Handlers that take part in chains: the stage beside the record, and loops that end."""

from __future__ import annotations

from tsdb.chain import TTL_HOPS, Chain, Stage
from tsdb.parallel_consumer import DeadLettered, ErrorPolicy, Record
from tsdb.parallel_consumer.executors.chained import chained
from tsdb.parallel_consumer.scheduling.dead_letters import PREFIX
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, Simulation, VirtualClock

TOPIC = "orders"


def test_a_topic_that_feeds_itself_stops_at_its_last_hop() -> None:
    clock, broker, producer = VirtualClock(), MemoryBroker(1, TOPIC), MemoryProducer()
    chain = Chain("shop", "loop", now_ms=clock.now_ms, monotonic_ns=lambda: round(clock.monotonic() * 1e9))

    def feed(record: Record, stage: Stage) -> None:
        broker.append(TOPIC, 0, b"again", key=b"k", headers=stage.produce())

    simulation = Simulation(
        broker, chained(chain, feed), 1, clock=clock, producer=producer, dead_letter_topic="dlq", policy=ErrorPolicy()
    )
    broker.append(TOPIC, 0, b"first", key=b"k", headers=chain.first())
    simulation.run_until(lambda: bool(producer.sent))
    simulation.step(200)
    assert broker.ends[TOPIC, 0] == TTL_HOPS
    (dead_letter,) = producer.sent
    headers = dict(dead_letter.headers)
    assert headers[PREFIX + "reason"] == b"loop_protection"
    assert headers[PREFIX + "attempts"] == b"0"
    assert headers[chain.hops] == b"20"


def test_a_retry_is_no_hop_and_waits_are_from_when_the_message_was_made() -> None:
    clock, broker, producer = VirtualClock(), MemoryBroker(1, TOPIC), MemoryProducer()
    chain = Chain("shop", "billing", now_ms=clock.now_ms, monotonic_ns=lambda: round(clock.monotonic() * 1e9))
    written: list[list[tuple[str, bytes]]] = []

    def handle(record: Record, stage: Stage) -> None:
        if not written:
            written.append([])
            raise OSError("once")
        written.append(stage.produce())

    simulation = Simulation(
        broker, chained(chain, handle), 1, clock=clock, producer=producer, dead_letter_topic="dlq", policy=ErrorPolicy()
    )
    broker.append(TOPIC, 0, b"value", headers=chain.first())
    simulation.run_until(lambda: len(written) == 2)
    link = chain.read(written[1])
    assert link.hop_count == 2
    assert link.wait_ms == link.total_ms > 0


def test_a_dead_lettered_record_keeps_its_reason() -> None:
    broker, producer = MemoryBroker(1, TOPIC), MemoryProducer()

    def refuse(record: Record) -> None:
        raise DeadLettered("no such customer", reason="unknown_customer")

    simulation = Simulation(broker, refuse, 1, producer=producer, dead_letter_topic="dlq")
    broker.append(TOPIC, 0, b"value")
    simulation.run_until(lambda: bool(producer.sent))
    assert dict(producer.sent[0].headers)[PREFIX + "reason"] == b"unknown_customer"
