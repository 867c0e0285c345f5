"""Store: a share of the log's partitions in memory, rebuilt by replay at every start. It has no durable state.

Each partition's replay offset is resolved at construction; `start` starts the workers. Reads are refused until a
partition has caught up. Nothing is committed: a killed store starts again from the log alone. Snapshots of heads are a
cache that shortens the replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tsdb.head.head import Head
from tsdb.head.state import HeadLimits
from tsdb.log.interface import METRICS, SERIES, Log
from tsdb.log.start import Start, find_start
from tsdb.model.clock import Clock
from tsdb.model.placement import DEFAULT_PLACEMENT_LABELS
from tsdb.model.time_set import SliceLengths, TimeSet
from tsdb.ops.interpreter import MallocTrimmer
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.replay.replay import FreshStart, PartitionProgress, Replay
from tsdb.replay.series_feed import SeriesFeed
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition, StorePartitionStatus
from tsdb.store.readiness import ReadinessEvaluator
from tsdb.store.snapshots.key import StoreKey
from tsdb.store.snapshots.snapshots import SnapshotOptions, Snapshots
from tsdb.store.watermarks import WatermarkPoller
from tsdb.store.worker import Worker

ALIVE_WITHIN_S = 120.0  # A step may compile kernels or merge a large slice; no step takes longer.
RECORDS_MAX = 5_000  # Best for small records during a replay. Kernels then run for milliseconds without the GIL.
# Following 18 partitions at 1,500 records/s costs a third less than with 50 ms, and a third of the cost without a
# linger: fewer steps and fetches compete with reads.
LINGER_S = 0.1
SERIES_WINDOWS_BACK = 2  # A gateway announces a series at least once in this many windows.

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Settings of a store.

    hold_ms: how far back memory reaches, at least the time set's least hold. workers: threads, each with one consumer.
    lag_enter_s, lag_leave_s: a partition is ready below the first, and no longer ready above the second. records_max:
    most records of one fetch. linger_s: how long a record may wait in the log for others. placement_labels: they name a
    source in the report of a full memory. snapshots: None for a store without them.
    """

    time_set: TimeSet
    slices: SliceLengths
    hold_ms: int
    limits: HeadLimits
    workers: int
    lag_enter_s: float
    lag_leave_s: float
    records_max: int = RECORDS_MAX
    linger_s: float = LINGER_S
    placement_labels: tuple[str, ...] = DEFAULT_PLACEMENT_LABELS
    snapshots: SnapshotOptions | None = None


class Store:
    """A store: partitions, their workers and the watermark poller. `start`, `close`, `join`."""

    def __init__(self, log_: Log, partitions: Sequence[int], options: StoreOptions, clock: Clock) -> None:
        self._log = log_
        self._options = options
        self._clock = clock
        self.topic_id = log_.topic_id(METRICS)
        self.applied = AppliedSignal(clock)
        self._trimmer = MallocTrimmer(clock)
        self._starts = find_start(
            log_, METRICS, partitions, now_ms=clock.now_ms(), hold_ms=options.hold_ms, time_set=options.time_set
        )
        self.snapshots = self._snapshots()
        self._series_next: dict[int, int] = {}  # First announcement to read, by partition restored from a snapshot.
        self._looked_for: set[int] = set()  # Partitions whose snapshot was used or passed over.
        self.partitions: dict[int, Partition] = {}
        for partition in partitions:
            self.partitions[partition] = self._partition(partition, self._starts[partition])
        self._workers = [self._worker(i, share) for i, share in enumerate(_shares(partitions, options.workers))]
        self._poller = WatermarkPoller(log_, self.partitions, clock)

    @property
    def placement_labels(self) -> Sequence[str]:
        """The labels that name a source."""
        return self._options.placement_labels

    @property
    def memory_hard_bytes(self) -> int:
        """Memory limit of one partition."""
        return self._options.limits.memory_hard_bytes

    def start(self) -> None:
        """Begin to replay; returns at once. Raises ConfigMismatch for an unusable folder of snapshots."""
        if self.snapshots is not None:
            self.snapshots.open()
        self._poller.poll()
        self._poller.start()
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Stop applying records. Waiting reads are woken and refused."""
        for worker in self._workers:
            worker.close()
        self._poller.close()
        self.applied.close()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads. False: one still runs."""
        deadline = Deadline.after(timeout_s)
        ended = all(worker.join(deadline.remaining()) for worker in self._workers)
        if ended and self.snapshots is not None:
            ended = self.snapshots.join(deadline.remaining())
        return self._poller.join(deadline.remaining()) and ended

    def abort(self) -> None:
        """Write no more snapshots. There is nothing else to drop: everything in memory is in the log."""
        if self.snapshots is not None:
            self.snapshots.abort()

    def refresh_watermarks(self, within_s: float) -> None:
        """Fetch high watermarks now; see WatermarkPoller.refresh."""
        self._poller.refresh(within_s)

    def statuses(self) -> list[StorePartitionStatus]:
        """State, lag and readiness of every partition now."""
        return [partition.status() for partition in self.partitions.values()]

    def failure(self) -> BaseException | None:
        """The exception that ended a thread; None while all threads run."""
        failures = [self._poller.failure(), *(worker.failure() for worker in self._workers)]
        if self.snapshots is not None:
            failures.append(self.snapshots.writer.failure())
        return next(filter(None, failures), None)

    def stalled(self) -> str:
        """Reason why the store is not alive; empty while it makes progress or has nothing to do. Lag does not count."""
        silent_s = max(worker.silent_s() for worker in self._workers)
        return f"a worker has been in one step for {silent_s:.0f} s" if silent_s > ALIVE_WITHIN_S else ""

    def _partition(self, partition: int, start: Start) -> Partition:
        evaluator = ReadinessEvaluator(enter_s=self._options.lag_enter_s, leave_s=self._options.lag_leave_s)
        head = self._head(partition, start)
        progress, grace_ms = PartitionProgress(start.offset), self._options.time_set.grace_ms
        return Partition(partition, self.topic_id, head, progress, evaluator, self._clock, grace_ms)

    def _head(self, partition: int, start: Start) -> Head:
        return Head(
            partition,
            slices=self._options.slices,
            time_set=self._options.time_set,
            hold_ms=self._options.hold_ms,
            coverage_start_ms=start.coverage_start_ms,
            since_offset=start.offset,
            from_start=start.from_start,
            limits=self._options.limits,
        )

    def _worker(self, number: int, share: Sequence[int]) -> Worker:
        partitions = {partition: self.partitions[partition] for partition in share}
        return Worker(
            f"replay-{number}",
            partitions,
            lambda: self._replay(partitions),
            self.applied,
            self._clock,
            self._options.records_max,
            self._trimmer,
            self._options.placement_labels,
            self.snapshots,
        )

    def _snapshots(self) -> Snapshots | None:
        options = self._options
        if options.snapshots is None:
            return None
        key = StoreKey(
            self.topic_id,
            self._log.topic_id(SERIES),
            options.snapshots.meta,
            options.slices,
            options.hold_ms,
            options.limits,
        )
        return Snapshots(options.snapshots, key, self._log, self._clock, self._head)

    def _restore(self, partitions: Mapping[int, Partition]) -> None:
        """Use the snapshots of partitions, once. Raises Unavailable when the log does not answer."""
        starts = {number: self._starts[number] for number in partitions if number not in self._looked_for}
        restored = self.snapshots.load(starts) if self.snapshots is not None else {}
        for number, one in restored.items():
            place = one.place
            progress = PartitionProgress(place.next_offset, applied_broker_ms=place.applied_broker_ms)
            self.partitions[number].renew(one.head, progress)
            self._series_next[number] = place.series_next_offset
        for number, start in starts.items():
            self._looked_for.add(number)
            if number not in restored:
                _log_start(number, start)

    def _replay(self, partitions: Mapping[int, Partition]) -> Replay[Head]:
        self._restore(partitions)
        heads = {number: partition.head for number, partition in partitions.items()}
        starts = {number: self._starts[number] for number in partitions}
        horizon_ms = min(start.horizon_ms for start in starts.values())
        feed = SeriesFeed(
            self._log,
            heads,
            {**self._series_starts(list(partitions), horizon_ms), **_chosen(self._series_next, partitions)},
            oldest_ms=horizon_ms - self._options.time_set.accept_past_ms,
        )
        progress = {number: partition.progress for number, partition in partitions.items()}
        try:
            starts_at = {(METRICS, number): at.next_offset for number, at in progress.items()}
            reader = self._log.reader(starts_at, linger_s=self._options.linger_s)
            return Replay(reader, heads, progress, feed, clock=self._clock, renew=self._renew)
        except BaseException:
            feed.close()
            raise

    def _series_starts(self, partitions: Sequence[int], horizon_ms: int) -> dict[int, int]:
        """First announcement to read, two windows before the replay: every series was announced at least once since."""
        since_ms = horizon_ms - SERIES_WINDOWS_BACK * self._options.time_set.window_ms
        marks = self._log.watermarks(SERIES, partitions)
        found = self._log.offsets_for_times(SERIES, dict.fromkeys(partitions, since_ms))
        return {p: marks[p].high if (offset := found[p]) is None else offset for p in partitions}

    def _renew(self, partition: int) -> FreshStart[Head]:
        start = find_start(
            self._log,
            METRICS,
            [partition],
            now_ms=self._clock.now_ms(),
            hold_ms=self._options.hold_ms,
            time_set=self._options.time_set,
        )[partition]
        head, progress = self._head(partition, start), PartitionProgress(start.offset)
        self.partitions[partition].renew(head, progress)
        return FreshStart(head, progress, self._series_starts([partition], start.horizon_ms)[partition])


def _log_start(partition: int, start: Start) -> None:
    log.info(
        "replay starts",
        partition=partition,
        case=start.case.name.lower(),
        offset=start.offset,
        coverage_start_ms=start.coverage_start_ms,
        from_start=start.from_start,
    )


def _chosen(offsets: Mapping[int, int], partitions: Mapping[int, Partition]) -> dict[int, int]:
    return {number: offsets[number] for number in partitions if number in offsets}


def _shares(partitions: Sequence[int], workers: int) -> list[list[int]]:
    """Assigns partitions to workers in turn. There are never more workers than partitions."""
    count = max(1, min(workers, len(partitions)))
    return [list(partitions[first::count]) for first in range(count)]
