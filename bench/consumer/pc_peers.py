"""Compares the parallel consumer with others: Confluent's table, and the figures of Pyrallel-Consumer and Decaton.

`table`: 10,000 records in one partition, work of 0 to 4 whole ms (as in Confluent's VolumeTests), at most 100 in
flight, ordered by partition, by key with 1 to 10,000 keys, or unordered. Each row runs ours, then Confluent's library
and Decaton in a JVM (the folder `java`), on the same topic of the same broker. Without the jars the result has the
resolver's message. `sleeping`: the same work in sequence, without a consumer. `pyrallel`: 4 partitions, 2,000 records,
5 ms. `decaton`: 60 in flight, 10 ms, beside 60 threads that only sleep. Each figure has the published one beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from bench.consumer.pc_ground import FinishedCounter, NumberedTopic, consume, filled, on_loop, on_thread
from bench.measure import say
from stack.kafka import KafkaCluster
from stack.maven import CONFLUENT_PARALLEL, DECATON, JarSet, jars
from tsdb.parallel_consumer import (
    AsyncioExecutor,
    Executor,
    Order,
    Record,
    ThreadExecutor,
    by_key,
    by_partition,
    unordered,
)

COUNT = 10_000
AT_ONCE = 100
MS_BELOW = 5
FEW = 64  # Up to this many handlers at once run on threads.
SAID_CHARS_MAX = 2_000
JAVA = Path(__file__).parent / "java"


class PeerRow(NamedTuple):
    """A row of the table. published_s: the seconds that Confluent published. reach_s: the goal."""

    name: str
    order: Order
    keys: int
    published_s: float
    reach_s: float


TABLE = (
    PeerRow("partition", by_partition, 100, 22.2, 22.2),
    PeerRow("1 key", by_key, 1, 26.7, 26.7),
    PeerRow("10 keys", by_key, 10, 3.3, 3.2),
    PeerRow("20 keys", by_key, 20, 2.2, 2.0),
    PeerRow("100 keys", by_key, 100, 2.1, 0.9),
    PeerRow("10000 keys", by_key, 10_000, 2.1, 0.9),
    PeerRow("unordered", unordered, 100, 2.8, 0.9),
)
ORDERING: dict[Order, str] = {by_partition: "PARTITION", by_key: "KEY", unordered: "UNORDERED"}


def main(argv: Sequence[str]) -> dict[str, object]:
    """Seconds for the rows of the table, and records a second for the other benches."""
    parser = argparse.ArgumentParser(prog="bench pc_peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the rows in which one record runs at a time")
    parser.add_argument("--only", choices=("table", "rates"), help="one part alone")
    parser.add_argument("--alone", action="store_true", help="without the other libraries")
    arguments = parser.parse_args(argv)
    result: dict[str, object] = {}
    with KafkaCluster() as cluster, ExitStack() as built:
        if arguments.only != "rates":
            libraries = [] if arguments.alone else [built.enter_context(peer) for peer in (CONFLUENT, DECATON_LIBRARY)]
            result |= _table(cluster.bootstrap, TABLE[2:] if arguments.quick else TABLE, libraries)
        if arguments.only != "table":
            result |= _rates(cluster.bootstrap)
    return result


def _table(bootstrap: str, rows: Sequence[PeerRow], libraries: Sequence[PeerLibrary]) -> dict[str, object]:
    topics = {keys: filled(bootstrap, 1, COUNT, keys) for keys in sorted({row.keys for row in rows})}
    found = []
    for row in rows:
        topic = topics[row.keys]
        seconds = {"ours": _ours(row, topic)} | {
            peer.name: peer.seconds(row, topic) for peer in libraries if peer.runs(row)
        }
        say(f"{row.name}: {seconds}; published {row.published_s}")
        found.append({"order": row.name, **seconds, "published": row.published_s, "reach": row.reach_s})
    refused = {peer.name: peer.refused for peer in libraries if peer.refused}
    return {"sleeping": _sleeping_alone(), "table": found, "not to be had": refused}


def _ours(row: PeerRow, topic: NumberedTopic) -> float:
    pause_s = _pauses()
    few = 1 if row.order is by_partition else min(row.keys, AT_ONCE) if row.order is by_key else AT_ONCE
    return round(consume(topic, _sleeping(pause_s, few), AT_ONCE, row.order), 2)


def _pauses() -> Callable[[], float]:
    source = random.Random(1)
    return lambda: source.randrange(MS_BELOW) / 1000


def _sleeping_alone() -> float:
    """Seconds of the table's work in sequence, measured with a fifth of it."""
    pause_s, began = _pauses(), time.perf_counter()
    for _ in range(COUNT // 5):
        time.sleep(pause_s())
    return round((time.perf_counter() - began) * 5, 2)


def _rates(bootstrap: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for keys, reach in ((100, 10_000), (1_000, 20_000)):
        topic = filled(bootstrap, 4, 2_000, keys)
        rate = max(_rate(topic, 5, 2_000) for _ in range(3))
        found[f"pyrallel, {keys} keys"] = {"per_s": rate, "reach": reach, "published": 2_797}
    topic = filled(bootstrap, 4, 30_000, 30_000)
    found["decaton, 60 x 10 ms"] = {
        "per_s": _rate(topic, 10, 60),
        "sleeping threads": _threads_per_s(60),
        "reach": 5_748,
    }
    return found


def _threads_per_s(count: int) -> int:
    """Sleeps of 10 ms a second that `count` threads do together, without other work."""
    each = 200

    def sleep() -> None:
        for _ in range(each):
            time.sleep(0.01)

    threads = [threading.Thread(target=sleep) for _ in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return round(count * each / (time.perf_counter() - began))


def _rate(topic: NumberedTopic, ms: int, at_once: int) -> int:
    # Twice as many records in flight as handlers, so that a free thread finds the next record waiting.
    return round(topic.count / consume(topic, _sleeping(lambda: ms / 1000, at_once), 2 * at_once))


def _sleeping(pause_s: Callable[[], float], at_once: int) -> Callable[[FinishedCounter], Executor]:
    """Handlers that only sleep: on threads up to FEW at once, else on an event loop, which rounds up to whole ms."""

    def task(record: Record) -> None:
        time.sleep(pause_s())

    async def async_work(record: Record) -> None:
        await asyncio.sleep(pause_s())

    def make(progress: FinishedCounter) -> Executor:
        if at_once <= FEW:
            return ThreadExecutor(on_thread(task, progress), at_once)
        return AsyncioExecutor(on_loop(async_work, progress))

    return make


class PeerLibrary:
    """Another library: its jars, and a program of the folder `java`. A context manager: entry compiles it.

    refused: message of the resolver when it cannot get the jars; the library runs nothing then.
    """

    def __init__(self, name: str, library: JarSet, program: str, orders: Container[Order]) -> None:
        self.name = name
        self.refused = ""
        self._library = library
        self._program = program
        self._orders = orders

    def runs(self, row: PeerRow) -> bool:
        """Whether the library is available and has the row's order."""
        return not self.refused and row.order in self._orders

    def seconds(self, row: PeerRow, topic: NumberedTopic) -> float:
        """Seconds of one row of the table, in a new JVM and a new group."""
        arguments = [topic.bootstrap, topic.name, uuid.uuid4().hex, ORDERING[row.order], str(AT_ONCE), str(topic.count)]
        command = ["java", "-Xmx512m", "-cp", self._class_path, self._program, *arguments, str(MS_BELOW)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return round(float(json.loads(done.stdout.splitlines()[-1])["seconds"]), 2)

    def __enter__(self) -> Self:
        self._built = tempfile.TemporaryDirectory()
        try:
            theirs = f"{jars(self._library)}/*"
        except RuntimeError as error:
            self.refused = str(error)[-SAID_CHARS_MAX:]
            return self
        source = str(JAVA / f"{self._program}.java")
        subprocess.run(["javac", "-nowarn", "-cp", theirs, "-d", self._built.name, source], check=True)
        self._class_path = f"{self._built.name}:{theirs}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._built.cleanup()


CONFLUENT = PeerLibrary("confluent", CONFLUENT_PARALLEL, "ConfluentTable", ORDERING)
DECATON_LIBRARY = PeerLibrary("decaton", DECATON, "DecatonTable", (by_key,))
