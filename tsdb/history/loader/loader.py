"""Loader: puts what the chunk stage wrote into history, and says how far it is there. The only writer of history.

A parallel consumer of `chunks` and `series` ordered by pack, with many writes in flight. It owns no state: what is not
committed is written again, which changes nothing. `start`, `close`, `join`, `abort`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tsdb.history.inflight import ROW_BYTES
from tsdb.history.interface import ChunkSink
from tsdb.history.loader.errors import POLICY
from tsdb.history.loader.lanes import lane_of, marker_is_due
from tsdb.history.loader.loaded_marks import LoadedMarks
from tsdb.history.loader.loading import Loading
from tsdb.history.loader.outlet import LogOutlet
from tsdb.history.loader.raises import Raises
from tsdb.history.loader.remembered import REMEMBERED_MAX, Remembered
from tsdb.history.loader.reporter import LoaderReporter
from tsdb.history.loader.source import LogSource
from tsdb.history.loader.trimmed import trimmed_holes
from tsdb.log.chains import chain_of
from tsdb.log.interface import CHUNKS_DLQ, METRICS, SERIES, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch
from tsdb.model.meta import PART_BYTES_MAX
from tsdb.model.time_set import TimeSet
from tsdb.ops.health import PartitionHealth
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.metrics import registry
from tsdb.parallel_consumer import CallbackExecutor, ConsumerMetrics, Options, ParallelConsumer, Record

GROUP = "loader"
FILES_GROUP = "loader-parquet"  # Its own commits: files are loaded beside a history, not in its place.
POLL_RECORDS_MAX = 128  # While they are read no write is begun, and places that become free stay empty.
ALIVE_WITHIN_S = 120.0  # A step waits for one answer of log or history at most; each has a shorter bound.

consumer_metrics = ConsumerMetrics(registry, "tsdb_loader_consumer_")


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """How a loader works.

    group_id: loaders of one group share the work of one history. concurrency: writes in flight. inflight_bytes_max:
    bytes of those, as the store bounds them. buffer_bytes_max, buffer_records_max: read and not yet in history.
    remembered_max: announcements known to be in history already.
    drain_s: how long an end, or partitions that go, wait for writes in flight. accept_replay: pass over commits whose
    metadata cannot be trusted.
    """

    time_set: TimeSet
    group_id: str = GROUP
    part_bytes_max: int = PART_BYTES_MAX
    concurrency: int = 64
    inflight_bytes_max: int = 4 << 20
    buffer_bytes_max: int = 128 << 20
    buffer_records_max: int = 50_000
    remembered_max: int = REMEMBERED_MAX
    commit_interval_s: float = 0.2
    drain_s: float = 20.0
    accept_replay: bool = False

    def consumer_options(self) -> Options:
        """As the parallel consumer takes them. Raises ConfigMismatch (loader_options)."""
        # A write that finds no room in the store would hold up everything: the consumer begins none.
        running_bytes_max = self.inflight_bytes_max - 2 * ROW_BYTES * self.concurrency
        if running_bytes_max < self.part_bytes_max:
            raise ConfigMismatch(
                f"{self.inflight_bytes_max} bytes in flight do not hold a part of {self.part_bytes_max} bytes and"
                f" {self.concurrency} writes",
                reason="loader_options",
            )
        return Options(
            concurrency=self.concurrency,
            running_bytes_max=running_bytes_max,
            records_max=self.buffer_records_max,
            bytes_max=self.buffer_bytes_max,
            poll_records_max=POLL_RECORDS_MAX,
            commit_interval_s=self.commit_interval_s,
            drain_s=self.drain_s,
            rebalance_drain_s=self.drain_s,
            accept_replay=self.accept_replay,
        )


class Loader:
    """One member of the group of loaders. The log and the store are their owners' to close."""

    def __init__(
        self, log_: Log, store: ChunkSink, options: LoaderOptions, clock: Clock, *, seed: int | None = None
    ) -> None:
        self._log = log_
        self._store = store
        self._clock = clock
        self._time_set = options.time_set
        self._topic_id = log_.topic_id(METRICS)
        self._source = LogSource(log_, options.group_id, self._loaded_partitions, self._from_zero, clock)
        self._raises = Raises(store, self._source.start_over, lambda: self._reporter.wake())
        self._marks = LoadedMarks(store, self._raises)
        self._remembered = Remembered(options.remembered_max)
        loading = Loading(
            store,
            self._marks,
            self._remembered,
            options.time_set,
            options.part_bytes_max,
            chain_of("loader", clock.now_ms),
        )
        self._consumer = ParallelConsumer(
            self._source,
            CallbackExecutor(loading),
            order=lane_of,
            policy=POLICY,
            options=options.consumer_options(),
            producer=LogOutlet(log_),
            dead_letter_topic=CHUNKS_DLQ,
            gate=self._gate,
            metrics=consumer_metrics,
            clock=clock,
            randomness=random.Random(seed),
            name="loader",
        )
        self._reporter = LoaderReporter(log_, lambda: self._consumer.status, self._source.refusal, self._marks, clock)

    def start(self) -> None:
        """Join the group and begin to load; returns at once."""
        self._consumer.start()
        self._reporter.start()

    def close(self) -> None:
        """Stop reading. What is in flight goes on."""
        self._consumer.close()

    def join(self, timeout_s: float) -> bool:
        """After close: wait until what is in flight is in history and committed. Raises what broke the loader."""
        deadline = Deadline.after(timeout_s)
        if not self._consumer.join(deadline.remaining()):
            return False
        self._reporter.close()
        return self._reporter.join(deadline.remaining())

    def abort(self) -> None:
        """Drop what is in flight; the next loader writes it again."""
        self._reporter.close()
        self._consumer.abort()

    def failure(self) -> BaseException | None:
        """What broke it; None while it works."""
        return self._consumer.failure() or self._reporter.failure()

    def health(self) -> dict[int, PartitionHealth]:
        """By partition that is ours: whether it goes on, its lag, and what is in the way."""
        return self._reporter.health

    def problem(self) -> tuple[str, str]:
        """(reason, message) of what keeps all partitions back, also when none is ours any more because of it; empty
        when nothing does."""
        problem = self._reporter.problem
        return problem.reason, problem.message

    def stalled(self) -> str:
        """Why it is not alive; empty while it is. History being away is no reason."""
        silent_s = self._consumer.silent_s()
        return f"the loader has been in one step for {silent_s:.0f} s" if silent_s > ALIVE_WITHIN_S else ""

    def _loaded_partitions(self, partitions: Collection[int]) -> Collection[int]:
        found = self._store.loaded(self._topic_id)
        self._raises.begin(partitions, found)
        return found.keys() & set(partitions)

    def _from_zero(self, ends: Mapping[int, int]) -> None:
        if ends:
            holes = trimmed_holes(self._log, ends, self._time_set, self._clock.now_ms())
            series = self._log.watermarks(SERIES, sorted(ends))
            self._remembered.forget()
            self._store.forget()
            self._raises.begin(ends, {})
            series_ends = {partition: marks.high for partition, marks in series.items()}
            self._marks.begin(ends, holes, self._clock.monotonic(), series_ends)

    def _gate(self, record: Record) -> bool:
        return marker_is_due(record, self._consumer.position)
