"""A handler with retries: a busy service is tried again, an invalid record becomes a dead letter. No server is needed.

    python examples/retries_and_dead_letters.py

The error policy maps exceptions to actions. A dead letter keeps key and value of its record and describes the failure
in headers (docs/formats/dead-letter.md).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tsdb.parallel_consumer import (
    Action,
    Backoff,
    Context,
    ErrorPolicy,
    ParallelConsumer,
    Position,
    Record,
    ThreadExecutor,
    TopicPartition,
)
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, MemorySource

ORDERS = (b"good", b"bad", b"busy once", b"always busy")


class ServiceBusy(Exception):
    """The service may accept the record later."""


class BadOrder(Exception):
    """No attempt can succeed."""


POLICY = ErrorPolicy(
    actions={ServiceBusy: Action.RETRY, BadOrder: Action.DEAD_LETTER},
    attempts_max=3,
    retry_backoff=Backoff(first_s=0.05),
)


def handle(record: Record, context: Context) -> None:
    print(f"attempt {context.attempt} of {record.value!r}")
    if record.value == b"bad":
        raise BadOrder("the amount is negative")
    if record.value == b"busy once" and context.attempt == 1:
        raise ServiceBusy("try again")
    if record.value == b"always busy":
        raise ServiceBusy("try again")


def main() -> None:
    broker, producer = MemoryBroker(1, "orders"), MemoryProducer()
    for value in ORDERS:
        broker.append("orders", 0, value, key=b"customer 1")

    all_finished = threading.Event()

    def on_committed(positions: Mapping[TopicPartition, Position]) -> None:
        if positions["orders", 0].next_offset == len(ORDERS):
            all_finished.set()

    # On Kafka: consume(config, ["orders"], handle, policy=POLICY, dead_letter_topic="orders.dlq").run()
    with ParallelConsumer(
        MemorySource(broker),
        ThreadExecutor(handle, 4),
        policy=POLICY,
        producer=producer,
        dead_letter_topic="orders.dlq",
        on_committed=on_committed,
    ):
        all_finished.wait()
    for dead_letter in producer.sent:
        headers = dict(dead_letter.headers)
        print(f"{dead_letter.topic}: {dead_letter.value!r}, {headers['dlq-reason']!r}, {headers['dlq-message']!r}")


if __name__ == "__main__":
    main()
