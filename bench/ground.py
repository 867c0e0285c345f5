"""Ground: makes a log for measurements, on a real broker or embedded, and writes W(S) into it as the last four hours.

Broker times are the sample times (CreateTime topics), so that a store replays hours in seconds. Roles refuse such
topics, so the benches run the parts of a role directly (bench/store_process.py).
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import say
from bench.workload import INTERVAL_MS, SAMPLES, Workload
from stack.kafka import KafkaCluster
from tsdb.log.interface import METRICS, SERIES, Appended, Log
from tsdb.log.meta import ensure_meta
from tsdb.log.open import open_log, open_topics
from tsdb.log.settings import LogSettings
from tsdb.log.topics import CREATE_TIME, LOG_APPEND_TIME, create_topics, topic_specs
from tsdb.model.errors import Overloaded, TsdbError
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import PRODUCTION

PARTITIONS = 18
PARTITIONS_FEW = 2  # The partitions of one worker.
FILL_SETTINGS = LogSettings(idempotence=False, linger_ms=20.0, queue_bytes_max=512 << 20, delivery_timeout_s=120.0)
# Without idempotence, one request at a time keeps the order. Idempotence would cost CPU and is not measured here.


@contextmanager
def kafka_log(partitions: int = PARTITIONS, *, broker_times: str = CREATE_TIME) -> Iterator[str]:
    """URL of a fresh log on a new broker."""
    with KafkaCluster() as cluster:
        url = f"kafka://{cluster.bootstrap}"
        make_topics(url, partitions, broker_times)
        yield url


@contextmanager
def embedded_log(partitions: int = PARTITIONS, *, broker_times: str = CREATE_TIME) -> Iterator[str]:
    """URL of a fresh log in a scratch folder."""
    with tempfile.TemporaryDirectory(prefix="bench-log-") as folder:
        url = f"sqlite:///{Path(folder) / 'log.sqlite'}"
        make_topics(url, partitions, broker_times)
        yield url


def make_topics(url: str, partitions: int, broker_times: str = LOG_APPEND_TIME, *, prefix: str = "") -> None:
    """Create the topics and shared settings on one broker. prefix: the prefix of the topics' names."""
    with open_topics(url, prefix=prefix) as topics:
        create_topics(topics, topic_specs(partitions, replication=1, timestamp_type=broker_times))
    with open_log(url, prefix=prefix) as log:
        ensure_meta(log, MetaSettings(partitions, time_set=PRODUCTION))


def ago_ms(samples: int = SAMPLES) -> int:
    """Start of a span of `samples` intervals that ends now, on the interval's grid."""
    now_ms = int(time.time() * 1000)
    return now_ms - now_ms % INTERVAL_MS - (samples - 1) * INTERVAL_MS


def fill(
    url: str,
    workload: Workload,
    start_ms: int,
    *,
    samples: int = SAMPLES,
    record_samples: int = 0,
    prefix: str = "",
    first: int = 0,
) -> int:
    """Write `samples` scrapes from start_ms on, and announce all series in each window, as gateways do.

    record_samples: approximate samples in a record; 0: a partition's scrape is one record. first: the first scrape's
    column in the workload. Returns the number of records.
    """
    started = time.monotonic()
    with open_log(url, prefix=prefix, settings=FILL_SETTINGS) as log:
        pending = Appends(log)
        for column in range(samples):
            ts_ms = start_ms + column * INTERVAL_MS
            if (first + column) % SAMPLES == 0:
                announce(log, workload, ts_ms)
            for share in workload.shares:
                for record in workload.record(share, ts_ms, first + column, record_samples):
                    pending.add(METRICS, share.partition, record, timestamp_ms=ts_ms)
        pending.wait()
    seconds = time.monotonic() - started
    say(f"filled {samples} x {len(workload.labels)} samples, {pending.count} records, {seconds:.1f} s")
    return pending.count


def announce(log: Log, workload: Workload, ts_ms: int) -> None:
    """Announce all series; the announcements are durable when it returns."""
    pending = Appends(log)
    for share in workload.shares:
        for key, value in workload.announcements(share, ts_ms):
            pending.add(SERIES, share.partition, value, key=key, timestamp_ms=ts_ms)
    pending.wait()


class Appends:
    """Appends records as fast as the log takes them. `wait` raises the first failure."""

    def __init__(self, log: Log) -> None:
        self.count = 0
        self._log = log
        self._failed: list[TsdbError] = []
        self._done = threading.Semaphore(0)

    def add(
        self, topic: str, partition: int, value: bytes, *, key: bytes | None = None, timestamp_ms: int | None = None
    ) -> None:
        """Append one record; waits while the log's queue is full."""
        while True:
            try:
                self._log.append(topic, partition, value, key=key, timestamp_ms=timestamp_ms, on_done=self._on_done)
                self.count += 1
                return
            except Overloaded:
                time.sleep(0.01)

    def wait(self) -> None:
        """Wait until all appends are answered. Raises the first failure."""
        self._log.flush(120.0)
        for _ in range(self.count):
            self._done.acquire()
        if self._failed:
            raise self._failed[0]

    def _on_done(self, answer: Appended | TsdbError) -> None:
        if isinstance(answer, TsdbError):
            self._failed.append(answer)
        self._done.release()


def high_watermarks(log: Log, topic: str = METRICS, partitions: Iterable[int] | None = None) -> dict[int, int]:
    """Current high watermark of each partition."""
    numbers = range(log.partitions(topic)) if partitions is None else partitions
    return {number: marks.high for number, marks in log.watermarks(topic, list(numbers)).items()}
