"""The dead letter topic is looked for before anything is read; a letter goes to a partition that it has."""

from __future__ import annotations

import pytest

from tsdb.parallel_consumer import Action, ConsumerError, ErrorPolicy, Record
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryOutlet, Simulation

TOPIC = "orders"
POLICY = ErrorPolicy({ValueError: Action.DEAD_LETTER}, crashes_max=None)


class LookingOutlet(MemoryOutlet):
    """Answers for a topic after so many looks: how many partitions it has, or that there is none."""

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


def simulate(outlet: MemoryOutlet, partitions: int = 1) -> tuple[Simulation, MemoryBroker]:
    broker = MemoryBroker(partitions, TOPIC)
    for number in range(partitions):
        broker.append(TOPIC, number, b"%d" % number, key=b"k")
    return Simulation(broker, spoil, 1, outlet=outlet, dead_letter_topic="orders.dlq", policy=POLICY), broker


def test_a_dead_letter_topic_that_is_not_there_is_named_before_anything_is_read() -> None:
    simulation, _ = simulate(LookingOutlet(None))
    with pytest.raises(ConsumerError, match=r"dead-letter topic orders\.dlq: there is none: create it") as gone:
        simulation.step(1)
    assert gone.value.reason == "topic_gone"
    assert not simulation.source.polls


def test_nothing_is_read_while_nobody_answers_for_the_dead_letter_topic() -> None:
    outlet = LookingOutlet(1, after=5)
    simulation, _ = simulate(outlet)
    simulation.step(5)
    assert not simulation.source.polls
    simulation.run_until(lambda: len(outlet.sent) == 1)
    assert outlet.looks == 6


def test_letters_of_more_partitions_than_the_topic_has_go_around_and_name_where_they_were() -> None:
    outlet = LookingOutlet(2)
    simulation, _ = simulate(outlet, partitions=5)
    simulation.run_until(lambda: len(outlet.sent) == 5)
    told = {int(dict(letter.headers)["dlq-partition"]): letter.partition for letter in outlet.sent}
    assert told == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}


def test_an_outlet_that_knows_no_topics_keeps_the_partition() -> None:
    outlet = MemoryOutlet()
    simulation, _ = simulate(outlet, partitions=3)
    simulation.run_until(lambda: len(outlet.sent) == 3)
    assert {letter.partition for letter in outlet.sent} == {0, 1, 2}
