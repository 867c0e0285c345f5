"""Completions: records a second that the offset tracker takes when records finish in random order, and that the whole
core takes.

`tracker`: add blocks of records, finish them in random order, read the position after each block. `core`: records of
many keys through a consumer over a broker in memory, with a handler that does nothing, on one thread.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from bench.measure import spent
from tsdb.parallel_consumer import (
    Action,
    CallbackExecutor,
    ConsumerMetrics,
    Done,
    ErrorPolicy,
    Options,
    Record,
)
from tsdb.parallel_consumer.clock import SystemClock
from tsdb.parallel_consumer.core import Core
from tsdb.parallel_consumer.offsets.tracker import OffsetTracker
from tsdb.parallel_consumer.scheduling.completion import ThreadMailbox
from tsdb.parallel_consumer.setup import Setup
from tsdb.parallel_consumer.testing import MemoryBroker, MemorySource

BLOCK = 10_000
ROUNDS = 5


def main(argv: Sequence[str]) -> dict[str, object]:
    """Completions per CPU second, medians of ROUNDS."""
    parser = argparse.ArgumentParser(prog="bench completions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    arguments = parser.parse_args(argv)
    count = 100_000 if arguments.quick else 1_000_000
    return {
        "tracker_per_cpu_s": _median(lambda: _track(count)),
        "core_per_cpu_s": _median(lambda: _consume(count // 10)),
    }


def _median(run: Callable[[], float]) -> int:
    return round(sorted(run() for _ in range(ROUNDS))[ROUNDS // 2])


def _track(count: int) -> float:
    order = list(range(BLOCK))
    random.Random(1).shuffle(order)
    tracker = OffsetTracker(0)
    cpu_s = 0.0
    for first in range(0, count, BLOCK):
        slots = [tracker.add(first + number) or 0 for number in range(BLOCK)]
        with spent() as completion:
            for number in order:
                tracker.finish(slots[number])
            position = tracker.position
        cpu_s += completion.cpu_s
        assert position == first + BLOCK
    return count / cpu_s


def _consume(count: int) -> float:
    broker = MemoryBroker(4, "t")
    for number in range(count):
        broker.append("t", number % 4, b"value", key=b"%d" % (number % 997))

    def handle(record: Record, done: Done) -> None:
        done(None)

    setup = Setup(
        metrics=ConsumerMetrics(CollectorRegistry()),
        clock=SystemClock(),
        policy=ErrorPolicy(default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None),
        options=Options(concurrency=256),
    )
    core = Core(source := MemorySource(broker), CallbackExecutor(handle), ThreadMailbox(), setup)
    source.start(core)
    with spent() as all_of_it:
        while sum(core.position(("t", partition)) or 0 for partition in range(4)) < count:
            core.step(0.01)
    return count / all_of_it.cpu_s
