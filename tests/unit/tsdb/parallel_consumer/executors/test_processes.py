"""Handlers on other processes: when records are handed over, exceptions, and processes that end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from support.servers.logs import wait_until
from tsdb.parallel_consumer import (
    Backoff,
    ConsumerMetrics,
    ErrorPolicy,
    InvalidConfig,
    Options,
    ParallelConsumer,
    ProcessExecutor,
    Record,
)
from tsdb.parallel_consumer.executors.process_executor import Pace
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, MemorySource

TOPIC = "orders"
ROUNDS = 20_000  # About a millisecond, so a hand-over to a process pays.


class Unsendable(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class Willing(Pace):
    """Always hands over: the gain on a machine is not tested here."""

    def decide(self, now: float) -> bool:
        self.hands_over = True
        return True


def compute(record: Record) -> None:
    """A handler that computes, records its process, and fails or ends its process on request."""
    sum(number * number for number in range(ROUNDS))
    request = (record.value or b"").decode()
    if request == "raise":
        raise ValueError("spoilt")
    if request == "raise unsendable":
        raise Unsendable(1, 2)
    if request == "die" and os.getpid() != int(record.headers[0][1]):
        os._exit(3)
    with (Path(record.headers[1][1].decode()) / str(os.getpid())).open("ab") as file:
        file.write(b"%d %d\n" % (int(record.key or b""), record.offset))


def quick(record: Record) -> None:
    """A handler that does nothing."""


@pytest.mark.slow
def test_other_processes_run_records_in_key_order_and_failures_become_dead_letters(
    tmp_path: Path,
) -> None:
    broker, producer = MemoryBroker(2, TOPIC), MemoryProducer()
    headers = [("pid", b"%d" % os.getpid()), ("seen", str(tmp_path).encode())]
    special = {200: b"raise", 250: b"raise unsendable", 300: b"die"}
    count = 1_200
    for number in range(count):
        broker.append(TOPIC, number % 2, special.get(number, b""), key=b"%d" % (number % 40), headers=headers)
    executor = ProcessExecutor(compute, 2, pace=Willing(2))
    consumer = ParallelConsumer(
        MemorySource(broker),
        executor,
        policy=ErrorPolicy(crashes_max=None, attempts_max=2, retry_backoff=Backoff(first_s=0.01, longest_s=0.01)),
        options=Options(concurrency=200),
        producer=producer,
        dead_letter_topic="dlq",
        metrics=ConsumerMetrics(CollectorRegistry()),
    )
    with consumer:
        wait_until(lambda: sum(at.next_offset for at in broker.commits.values()) == count)
    by_exception = {
        dict(dead_letter.headers)["dlq-exception"].rpartition(b".")[2]: dict(dead_letter.headers)
        for dead_letter in producer.sent
    }
    assert set(by_exception) == {b"ValueError", b"ConsumerError", b"WorkerDied"}
    assert by_exception[b"ConsumerError"]["dlq-message"] == b"Unsendable: 1 and 2"
    assert b"in compute" in by_exception[b"ValueError"]["dlq-stack"]
    assert by_exception[b"ValueError"]["dlq-attempts"] == b"2"
    assert len(producer.sent) == 3
    by_process = {int(path.name): path.read_text().split("\n")[:-1] for path in tmp_path.iterdir()}
    assert len(by_process.keys() - {os.getpid()}) >= 2, "nothing was handed over"
    done = [tuple(map(int, line.split())) for lines in by_process.values() for line in lines]
    assert len(set(done)) == count - 3
    for lines in by_process.values():
        for key in range(40):
            mine = [int(line.split()[1]) for line in lines if int(line.split()[0]) == key]
            firsts = list(dict.fromkeys(mine))
            assert firsts == sorted(firsts)


def test_a_quick_handler_is_never_handed_over() -> None:
    broker = MemoryBroker(2, TOPIC)
    for number in range(20_000):
        broker.append(TOPIC, number % 2, b"", key=b"%d" % (number % 40))
    executor = ProcessExecutor(quick, 2)
    policy = ErrorPolicy(crashes_max=None, attempts_max=1)
    metrics = ConsumerMetrics(CollectorRegistry())
    consumer = ParallelConsumer(
        MemorySource(broker),
        executor,
        policy=policy,
        producer=MemoryProducer(),
        dead_letter_topic="dlq",
        metrics=metrics,
    )
    with consumer:
        wait_until(lambda: sum(at.next_offset for at in broker.commits.values()) == 20_000)
        assert not executor.hands_over


def test_a_handler_without_an_importable_name_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="cannot be sent to another process"):
        ProcessExecutor(lambda record: None)
