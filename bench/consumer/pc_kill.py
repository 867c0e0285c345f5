"""Kill: 20 records, 4 at once, SIGKILL in the middle, a second process; count the records done twice.

`ours`: a commit after each finished record. `batch`, the control: poll 4, do them, commit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.consumer.pc_ground import NumberedTopic, filled
from stack.kafka import KafkaCluster

COUNT, AT_ONCE = 20, 4
KILL_AFTER = 9  # Records done.
SETTLE_S = 0.03  # A commit takes less. A record that ends in this time before the kill may be done again.
WITHIN_S = 60.0

OURS = """
import sys, time
from tsdb.parallel_consumer import *
from tsdb.parallel_consumer.kafka import KafkaSource
bootstrap, topic, group, seen = sys.argv[1:]
out = open(seen, "ab", buffering=0)
def handle(record):
    number = int(record.value)
    time.sleep(0.4 if number % 4 == 0 else 0.1)
    out.write(b"%d\\n" % number)
policy = ErrorPolicy(default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None)
source = KafkaSource({"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 6000}, [topic])
consumer = ParallelConsumer(source, ThreadExecutor(handle, 4), policy=policy,
                            options=Options(concurrency=4, commit_records=1))
consumer.start()
consumer.join(600)
"""
BATCH = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from confluent_kafka import Consumer
bootstrap, topic, group, seen = sys.argv[1:]
out = open(seen, "ab", buffering=0)
def handle(message):
    number = int(message.value())
    time.sleep(0.4 if number % 4 == 0 else 0.1)
    out.write(b"%d\\n" % number)
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 6000,
                     "auto.offset.reset": "earliest", "enable.auto.commit": False})
consumer.subscribe([topic])
with ThreadPoolExecutor(4) as pool:
    while True:
        messages = consumer.consume(4, 0.5)
        list(pool.map(handle, messages))
        if messages:
            consumer.commit(asynchronous=False)
"""


def main(argv: Sequence[str]) -> dict[str, object]:
    """Records done twice. The goal for ours: 0 of the records whose end was committed."""
    parser = argparse.ArgumentParser(prog="bench pc_kill", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one kill instead of five")
    rounds = 1 if parser.parse_args(argv).quick else 5
    with KafkaCluster() as cluster:
        return {
            name: [_killed(program, filled(cluster.bootstrap, 1, COUNT, COUNT)) for _ in range(rounds)]
            for name, program in (("ours", OURS), ("batch", BATCH))
        }


def _killed(program: str, topic: NumberedTopic) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        seen = Path(folder) / "seen"
        _run_until(program, topic, seen, KILL_AFTER)
        before = len(_done(seen))
        _run_until(program, topic, seen, COUNT)
        counts = Counter(_done(seen))
    return {"done_before_the_kill": before, "done_twice": sum(count > 1 for count in counts.values())}


def _run_until(program: str, topic: NumberedTopic, seen: Path, count: int) -> None:
    """Run until `count` different records are done, then SIGKILL."""
    child = subprocess.Popen([sys.executable, "-c", program, topic.bootstrap, topic.name, f"g-{topic.name}", str(seen)])
    give_up_at = time.monotonic() + WITHIN_S
    while len(set(_done(seen))) < count:
        assert time.monotonic() < give_up_at, f"{_done(seen)} after {WITHIN_S:.0f} s"
        time.sleep(0.005)
    time.sleep(SETTLE_S)
    child.kill()
    child.wait()


def _done(seen: Path) -> list[int]:
    return [int(line) for line in seen.read_bytes().splitlines()] if seen.exists() else []
