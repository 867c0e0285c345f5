"""Status: computes the status of each assigned partition, for probes at any time, and for metrics within half a second
of a change.

A partition is ready while it keeps up with the log and the log accepts its chunks.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from chunker.member import Member
from chunker.partition import ChunkPartition
from tsdb.chunks.engine import windows_overdue
from tsdb.chunks.progress import Progress
from tsdb.chunks.stage_metrics import StageMetrics, StagePlace
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.model.time_set import TimeSet
from tsdb.ops.health import PartitionHealth
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.periodic import Periodic
from tsdb.store.readiness import HIGH_WATERMARK_AGE_MAX_S, Observation, PartitionReadiness, ReadinessEvaluator

EVERY_S = 0.5
ALL_EVERY_S = 5.0  # Windows become overdue by time alone.
UNACKNOWLEDGED_S_MAX = 20.0  # Chunks that have no acknowledgement after this time are a stall.

log = get_logger(__name__)

lag_seconds = gauge("tsdb_chunker_lag_seconds", "Lag in time; -1 while it is not known.", label="partition")
late_waiting = gauge("tsdb_chunker_late_samples_waiting", "Late samples not emitted yet.", label="partition")
head_bytes = gauge("tsdb_chunker_head_bytes", "Memory of slices, late list and label index.", label="partition")
polls_total = counter("tsdb_chunker_watermark_polls_total", "Requests for fresh high watermarks.")
poll_failures_total = counter("tsdb_chunker_watermark_poll_failures_total", "Requests for high watermarks that failed.")


@dataclass(frozen=True, slots=True)
class ChunkPartitionStatus:
    """Status of a partition at one moment. committed: progress in the group's commit; None before the take-over.

    lag_records: records from the committed position to the high watermark; None while one of the two is unknown.
    """

    partition: int
    readiness: PartitionReadiness
    next_offset: int | None
    committed: Progress | None
    lag_records: int | None
    windows_overdue: int | None
    last_commit_ms: int | None
    windows_waiting: int
    late_waiting: int
    stopped_message: str

    @property
    def position(self) -> int | None:
        return self.committed.position if self.committed else None

    @property
    def emitted_through_ms(self) -> int | None:
        return self.committed.emitted_through_ms if self.committed else None

    @property
    def place(self) -> StagePlace:
        """The status in the form of the metrics."""
        return StagePlace(self.partition, self.readiness.ready, self.lag_records, self.committed, self.windows_overdue)

    @property
    def health(self) -> PartitionHealth:
        """The status in the form of `/-/ready`."""
        return PartitionHealth(
            self.readiness.ready,
            self.readiness.reason,
            {
                "engine": "python",
                "lag_ms": self.readiness.lag_ms,
                "lag_records": self.lag_records,
                "windows_overdue": self.windows_overdue,
                "last_commit_ms": self.last_commit_ms,
                "next_offset": self.next_offset,
                "position": self.position,
                "emitted_through_ms": self.emitted_through_ms,
                "message": self.stopped_message or None,
            },
        )


class ChunkerReporter(Periodic):
    """Owns one thread, separate from the member's: a member that hangs must not also hide its lag.

    The thread reads high watermarks, which takes long when no broker answers. Probes use the last known values.
    """

    def __init__(
        self,
        log_: Log,
        member: Member,
        times: TimeSet,
        metrics: StageMetrics,
        clock: Clock,
        *,
        lag_enter_s: float,
        lag_leave_s: float,
    ) -> None:
        super().__init__("chunker-status", EVERY_S, self._update)
        self._log = log_
        self._member = member
        self._times = times
        self._metrics = metrics
        self._clock = clock
        self._lag_s = lag_enter_s, lag_leave_s
        self._lock = threading.Lock()  # Guards the evaluators; an innermost lock.
        self._evaluators: dict[ChunkPartition, ReadinessEvaluator] = {}
        self._high: dict[int, tuple[int, float]] = {}  # High watermark, and the monotonic time of its request.
        self._answered_at: float | None = None
        self._shown: dict[int, tuple[object, ...]] = {}  # The values in the gauges, by partition.
        self._all_at = clock.monotonic()

    def statuses(self) -> list[ChunkPartitionStatus]:
        """Status of every assigned partition now. Any thread."""
        ours = self._member.partitions
        with self._lock:
            self._evaluators = {p: self._evaluators.get(p) or self._evaluator() for p in ours.values()}
            return [self._status(partition, evaluator) for partition, evaluator in self._evaluators.items()]

    @property
    def log_answers(self) -> bool:
        """Whether the log answered recently, also while no partition is assigned."""
        at = self._answered_at
        return at is not None and self._clock.monotonic() - at <= HIGH_WATERMARK_AGE_MAX_S

    def _update(self) -> None:
        ours = self._member.partitions
        self._fetch_watermarks(list(ours) or [0])
        if self._clock.monotonic() >= self._all_at:
            self._all_at = self._clock.monotonic() + ALL_EVERY_S
            self._shown = dict.fromkeys(self._shown, ())
        for partition in ours.values():
            self._show(partition)
        for gone in self._shown.keys() - ours.keys():
            self._metrics.forget(gone)
            for shown in (lag_seconds, late_waiting, head_bytes):
                shown.remove(str(gone))
            del self._shown[gone]

    def _show(self, partition: ChunkPartition) -> None:
        """Set the gauges of a partition that has changed. Its evaluator sees each high watermark all the same."""
        high, at = self._high.get(partition.partition, (None, 0.0))
        progress = partition.progress
        next_offset = progress.next_offset if progress else 0
        reasons = partition.stopped, partition.waiting, partition.unacknowledged_since
        now = high, next_offset, partition.committed, *reasons
        with self._lock:
            evaluator = self._evaluators.get(partition) or self._evaluator()
            self._evaluators[partition] = evaluator
            if now == self._shown.get(partition.partition) and high is not None and high <= next_offset:
                evaluator.observe(next_offset, high, at)
                return
            status = self._status(partition, evaluator)
        self._shown[partition.partition] = now
        self._metrics.show(status.place)
        _set_gauges(status, partition)

    def _evaluator(self) -> ReadinessEvaluator:
        enter_s, leave_s = self._lag_s
        return ReadinessEvaluator(enter_s=enter_s, leave_s=leave_s)

    def _fetch_watermarks(self, partitions: list[int]) -> None:
        polls_total.inc()
        # The time before the request, because the answer is at least as fresh.
        at = self._clock.monotonic()
        try:
            highs = self._log.high_watermarks(METRICS, partitions)
        except TsdbError as error:
            poll_failures_total.inc()
            log.warning("high watermarks not available", reason=error.reason, error=error.message)
            return
        self._answered_at = at
        self._high.update({number: (high, at) for number, high in highs.items()})

    def _status(self, partition: ChunkPartition, evaluator: ReadinessEvaluator) -> ChunkPartitionStatus:
        progress, committed, stage = partition.progress, partition.committed, partition.stage
        high, at = self._high.get(partition.partition, (None, 0.0))
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        unacknowledged_since = partition.unacknowledged_since
        stalled = unacknowledged_since is not None and now - unacknowledged_since > UNACKNOWLEDGED_S_MAX
        seen = Observation(
            progress.next_offset if progress else 0,
            progress.applied_broker_ms if progress else None,
            high,
            at,
            partition.stopped or partition.waiting or ("chunks_not_acknowledged" if stalled else ""),
        )
        return ChunkPartitionStatus(
            partition.partition,
            evaluator.evaluate(seen, now_ms=now_ms, monotonic=now),
            progress.next_offset if progress else None,
            committed,
            self._lag_records(committed, high, at, now),
            windows_overdue(committed.emitted_through_ms, now_ms, self._times, "python") if committed else None,
            self._metrics.last_commit_ms.get(partition.partition),
            stage.windows_waiting if stage else 0,
            stage.late_waiting if stage else 0,
            partition.stopped_message,
        )

    @staticmethod
    def _lag_records(committed: Progress | None, high: int | None, at: float, now: float) -> int | None:
        """None while the lag is unknown, and when an old answer gives 0, because records may have come since."""
        if committed is None or high is None:
            return None
        lag = high - committed.position
        return lag if lag > 0 or now - at <= HIGH_WATERMARK_AGE_MAX_S else None


def _set_gauges(status: ChunkPartitionStatus, partition: ChunkPartition) -> None:
    name, readiness = str(status.partition), status.readiness
    lag_seconds.labels(name).set(-1 if readiness.lag_ms is None else readiness.lag_ms / 1000)
    late_waiting.labels(name).set(status.late_waiting)
    if partition.stage is not None:
        head_bytes.labels(name).set(partition.stage.head.sizes().bytes)
