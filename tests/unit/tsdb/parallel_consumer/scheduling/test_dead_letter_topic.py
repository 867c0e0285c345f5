"""The dead letter topic is looked up before any read; a dead letter goes to an existing partition."""

from __future__ import annotations

import pytest

from tsdb.parallel_consumer import Action, ConsumerError, ErrorPolicy, Record
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, Simulation

TOPIC = "orders"
POLICY = ErrorPolicy({ValueError: Action.DEAD_LETTER}, crashes_max=None)


class LookupProducer(MemoryProducer):
    """Answers the lookup of a topic after a number of calls: with its partition count, or with an error for a missing
    topic.
    """

    def __init__(self, partitions: int | None, *, after: int = 0) -> None:
        super().__init__()
        self._partitions = partitions
        self._unanswered = after
        self.looks = 0

    def partitions_of(self, topic: str) -> int | None:
        self.looks += 1
        if self._unanswered:
            self._unanswered -= 1
            return None
        if self._partitions is None:
            raise ConsumerError(f"topic {topic}: there is none: create it", reason="topic_gone")
        return self._partitions


def spoil(record: Record) -> None:
    raise ValueError("spoilt")


def simulate(producer: MemoryProducer, partitions: int = 1) -> tuple[Simulation, MemoryBroker]:
    broker = MemoryBroker(partitions, TOPIC)
    for number in range(partitions):
        broker.append(TOPIC, number, b"%d" % number, key=b"k")
    return Simulation(broker, spoil, 1, producer=producer, dead_letter_topic="orders.dlq", policy=POLICY), broker


def test_a_missing_dead_letter_topic_is_named_before_any_read() -> None:
    simulation, _ = simulate(LookupProducer(None))
    with pytest.raises(ConsumerError, match=r"dead-letter topic orders\.dlq: there is none: create it") as gone:
        simulation.step(1)
    assert gone.value.reason == "topic_gone"
    assert not simulation.source.polls


def test_nothing_is_read_while_the_dead_letter_topic_is_unknown() -> None:
    producer = LookupProducer(1, after=5)
    simulation, _ = simulate(producer)
    simulation.step(5)
    assert not simulation.source.polls
    simulation.run_until(lambda: len(producer.sent) == 1)
    assert producer.looks == 6


def test_dead_letters_wrap_around_the_partitions_of_a_smaller_topic() -> None:
    producer = LookupProducer(2)
    simulation, _ = simulate(producer, partitions=5)
    simulation.run_until(lambda: len(producer.sent) == 5)
    partitions = {
        int(dict(dead_letter.headers)["dlq-partition"]): dead_letter.partition for dead_letter in producer.sent
    }
    assert partitions == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}


def test_a_producer_without_topic_lookup_keeps_the_partition() -> None:
    producer = MemoryProducer()
    simulation, _ = simulate(producer, partitions=3)
    simulation.run_until(lambda: len(producer.sent) == 3)
    assert {dead_letter.partition for dead_letter in producer.sent} == {0, 1, 2}
