"""Business events: calls a service, some calls slow, from a batch loop, from one consumer a thread, and from our
consumer.

Every tenth call takes 1 s, all others 200 ms. `batch`: poll N, call all at once, wait for all, commit. `threads`: N
consumers of one group, each polls one record, calls, commits. `ours`: N in flight. The service is a separate process
and reports its mean latency; N / mean latency is the limit for N in flight. The sweep has other shares of slow calls.
`virtual`: calls of up to 60 s on a virtual clock, and the slots that 200 calls a second need.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer

from bench.consumer.pc_ground import NumberedTopic, consume, filled, on_thread
from bench.consumer.pc_virtual import slots_needed, virtual_rates
from bench.consumer.stub_service import StubService
from bench.measure import say
from stack.kafka import KafkaCluster
from tsdb.parallel_consumer import Record, ThreadExecutor

SLOW_MS, USUAL_MS = 1_000, 200
EVERY = 10
AT_ONCE = (10, 50)
# The first and the last EDGE x AT_ONCE calls are not measured: slots are free then.
EDGE = 2
SWEEP = (0, 5, 10, 20)  # Per cent of slow calls.


def main(argv: Sequence[str]) -> dict[str, object]:
    """Calls a second. The goal for our consumer is 35 with 10 calls at once, and 176 with 50."""
    parser = argparse.ArgumentParser(prog="bench pc_events", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer calls, no sweep")
    parser.add_argument("--only", choices=("events", "sweep"), help="one part alone")
    arguments = parser.parse_args(argv)
    rounds = 10 if arguments.quick else 30
    sweep = SWEEP if arguments.only == "sweep" or not (arguments.quick or arguments.only) else ()
    result: dict[str, object] = {}
    with KafkaCluster() as cluster, StubService() as service:
        for at_once in AT_ONCE if arguments.only != "sweep" else ():
            found = _all(cluster.bootstrap, service, at_once, at_once * rounds, _every(EVERY))
            result[f"{at_once} at once"] = found
            say(f"{at_once}: {found}")
        for share in sweep:
            every = 100 // share if share else 0
            result[f"{share} % slow, 10 at once"] = _all(cluster.bootstrap, service, 10, 100, _every(every))
    return result | {"virtual": virtual_rates(), "slots for 200 a second": slots_needed()}


def _every(number: int) -> Callable[[int], int]:
    """Duration of call i in ms. Each block of `number` calls has one slow call, at a different index in each block."""
    return lambda i: SLOW_MS if number and i % number == i // number * 7 % number else USUAL_MS


def _all(bootstrap: str, service: StubService, at_once: int, count: int, ms: Callable[[int], int]) -> dict[str, float]:
    # Each record has a different key, so that no record waits for another.
    topic = filled(bootstrap, at_once, count, count, block=EVERY)
    service.report()
    rates = {"batch": _batch(topic, service, at_once, ms), "threads": _threads(topic, service, at_once, ms)}
    service.report()

    def call(record: Record) -> None:
        service.call(ms(int(record.value or b"")))

    edge = EDGE * at_once
    seconds = consume(topic, lambda progress: ThreadExecutor(on_thread(call, progress), at_once), at_once, edge=edge)
    report = service.report()
    rates |= {"ours": (count - 2 * edge) / seconds, "allowed": at_once / (report["mean_ms"] / 1000)}
    return {name: round(rate, 1) for name, rate in rates.items()} | {"most_at_once": report["most_at_once"]}


def _batch(topic: NumberedTopic, service: StubService, at_once: int, ms: Callable[[int], int]) -> float:
    """The usual loop: poll, fan out, wait for all, commit."""
    consumer, done, began_at = _joined(topic), 0, 0.0
    with ThreadPoolExecutor(at_once) as pool:
        while done < topic.count:
            messages = consumer.consume(at_once, 1.0)
            began_at = began_at or time.perf_counter()
            list(pool.map(service.call, [ms(int(message.value() or b"")) for message in messages]))
            done += len(messages)
            if messages:
                consumer.commit(asynchronous=False)
    seconds: float = time.perf_counter() - began_at
    consumer.close()
    return done / seconds


def _threads(topic: NumberedTopic, service: StubService, at_once: int, ms: Callable[[int], int]) -> float:
    """Run one consumer in each thread, with one partition each."""
    settings = topic.settings(**{"auto.offset.reset": "earliest", "enable.auto.commit": False})
    left = [topic.count]
    ended: list[float] = []
    lock = threading.Lock()  # Guards `left` and `ended`.

    def run() -> None:
        consumer = Consumer(settings)
        consumer.subscribe([topic.name])
        while left[0] > 0:
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            service.call(ms(int(message.value() or b"")))
            consumer.commit(message=message, asynchronous=False)
            with lock:
                left[0] -= 1
                ended.append(time.perf_counter())
        consumer.close()

    workers = [threading.Thread(target=run) for _ in range(at_once)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    ended.sort()
    edge = EDGE * at_once
    return (topic.count - 2 * edge) / (ended[-edge - 1] - ended[edge - 1])


def _joined(topic: NumberedTopic) -> Any:
    consumer = Consumer(topic.settings(**{"auto.offset.reset": "earliest", "enable.auto.commit": False}))
    consumer.subscribe([topic.name])
    return consumer
