"""The parallel consumer alone: four records at once, each key in order. No server: the broker is in memory.

    python examples/parallel_consumer.py

On Kafka one call does the same, and SIGTERM drains it:

    consume({"bootstrap.servers": "127.0.0.1:9092", "group.id": "billing"}, ["orders"], handle, concurrency=4).run()
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict

from tsdb.parallel_consumer import ErrorPolicy, Options, ParallelConsumer, Record, ThreadExecutor
from tsdb.parallel_consumer.errors import DeadLettered
from tsdb.parallel_consumer.policy import Action
from tsdb.parallel_consumer.testing import MemoryBroker, MemorySource

RECORDS, CUSTOMERS, THREADS = 40, 5, 4
# Without a dead letter topic a failure ends the consumer.
POLICY = ErrorPolicy({DeadLettered: Action.FATAL}, default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None)


def main() -> None:
    broker = MemoryBroker(2, "orders")
    for number in range(RECORDS):
        customer = number % CUSTOMERS
        broker.append("orders", customer % 2, b"order %d" % number, key=b"customer %d" % customer)

    handled: dict[bytes, list[bytes]] = defaultdict(list)
    all_handled = threading.Semaphore(0)

    def handle(record: Record) -> None:
        time.sleep(0.01)  # Stands for a slow call to a service.
        handled[record.key or b""].append(record.value or b"")
        all_handled.release()

    options = Options(concurrency=THREADS)
    with ParallelConsumer(MemorySource(broker), ThreadExecutor(handle, THREADS), policy=POLICY, options=options):
        for _ in range(RECORDS):
            all_handled.acquire()
    # Leaving the block drains and commits.
    for key, values in sorted(handled.items()):
        print(key.decode(), ", ".join(value.decode() for value in values))
    for (topic, partition), position in sorted(broker.commits.items()):
        print(f"{topic}/{partition} committed at {position.next_offset}")


if __name__ == "__main__":
    main()
