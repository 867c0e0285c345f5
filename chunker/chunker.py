"""Chunker: turns its group share of the log's partitions into chunks. Its only durable state is the group's commits."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from chunker.member import Member
from chunker.partition import ChunkerContext, ChunkPartition, StageOptions
from chunker.status import ChunkerReporter, ChunkPartitionStatus
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.stage_metrics import StageMetrics
from tsdb.log.interface import METRICS, SERIES, Log
from tsdb.model.clock import Clock
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.health import PartitionHealth
from tsdb.ops.lifecycle import Deadline
from tsdb.replay.series_feed import SeriesFeed

ALIVE_WITHIN_S = 120.0  # A step may seal a large slice; no step takes longer.
LINGER_S = 0.25  # Records wait for their window's end for hours. Each fetch costs the same for one as for many.
ALL_EPOCHS_MS = -(1 << 60)  # Records may refer to announcements of any age.


@dataclass(frozen=True, slots=True)
class ChunkerOptions:
    """stage: options of each partition. inflight_bytes_max: bound of the bytes of unacknowledged chunks. A partition is
    ready below lag_enter_s, and no longer ready above lag_leave_s."""

    stage: StageOptions
    inflight_bytes_max: int
    lag_enter_s: float
    lag_leave_s: float


class Chunker:
    """The chunk stage as a service. It is a component of a process, with `start`, `close`, `join` and `abort`."""

    def __init__(self, log_: Log, options: ChunkerOptions, clock: Clock) -> None:
        self._clock = clock
        changed = threading.Event()
        self._partitions = list(range(log_.partitions(METRICS)))
        marks = log_.watermarks(SERIES, self._partitions)
        # It reads all partitions, because the assignment is not known yet. Announcements of other members' partitions
        # are skipped.
        self._series = SeriesFeed(log_, {}, {p: mark.high for p, mark in marks.items()}, ALL_EPOCHS_MS)
        metrics = StageMetrics("python")
        group = log_.group(GROUP_ID, metrics.engine, linger_s=LINGER_S)
        context = ChunkerContext(
            log_,
            group,
            self._series,
            ByteBudget(options.inflight_bytes_max, admits_one=True),
            changed,
            clock,
            options.stage,
            metrics,
        )
        self._member = Member(
            group,
            lambda partition: ChunkPartition(partition, context),
            changed,
            clock,
            options.stage.records_max,
        )
        self._reporter = ChunkerReporter(
            log_,
            self._member,
            options.stage.times,
            metrics,
            clock,
            lag_enter_s=options.lag_enter_s,
            lag_leave_s=options.lag_leave_s,
        )

    def start(self) -> None:
        """Join the group; returns at once."""
        self._reporter.start()
        self._member.start()

    def close(self) -> None:
        """Stop beginning new work; see Member.close."""
        self._member.close()
        self._reporter.close()

    def join(self, timeout_s: float) -> bool:
        """Finish writes that wait for the log, leave the group. False: a thread still runs."""
        deadline = Deadline.after(timeout_s)
        if not self._member.join(deadline.remaining()) or not self._reporter.join(deadline.remaining()):
            return False
        self._series.close()
        return True

    def abort(self) -> None:
        """Drop all work that is not committed. The next owner repeats it with the same bytes."""
        self._member.abort()
        self._reporter.close()

    def failure(self) -> BaseException | None:
        """The exception that ended one of the threads; None while they run."""
        return self._member.failure() or self._reporter.failure()

    def stalled(self) -> str:
        """Reason why the chunker is not alive; empty while it makes progress or has nothing to do. Lag does not
        count."""
        silent_s = self._member.silent_s()
        return f"the chunker has been in one step for {silent_s:.0f} s" if silent_s > ALIVE_WITHIN_S else ""

    def statuses(self) -> list[ChunkPartitionStatus]:
        """Status of each assigned partition now."""
        return self._reporter.statuses()

    def health(self) -> dict[int, PartitionHealth]:
        """The statuses in the form of `/-/ready`. Without an assignment every partition is not ready (joining). A spare
        is an exception: when the group has more members than partitions, some members have none."""
        if not self._member.partitions and not (self._member.is_spare and self._reporter.log_answers):
            return {partition: PartitionHealth(False, "joining") for partition in self._partitions}
        return {status.partition: status.health for status in self.statuses()}
