"""Status: an immutable snapshot of a consumer, which any thread may read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tsdb.parallel_consumer.flow.intake import Intake
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.offsets.commits import Commits
from tsdb.parallel_consumer.offsets.partition import PartitionState
from tsdb.parallel_consumer.record import TopicPartition
from tsdb.parallel_consumer.scheduling.runner import Runner
from tsdb.parallel_consumer.scheduling.stall import STALLS_MAX, Stall
from tsdb.parallel_consumer.scheduling.task import Task


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """State of one partition. position: its lowest unfinished offset. committed: the acknowledged position; None before
    the first commit.

    next_offset: the next to read. waiting: records in BARRIER that have not run yet.

    """

    position: int
    committed: int | None
    next_offset: int
    unfinished: int
    running: int
    waiting: int
    lanes: int
    paused: bool
    generation: int


@dataclass(frozen=True, slots=True)
class Status:
    """Snapshot of the consumer. running: records that are being handled or sent. blocked: records that an unavailable
    dependency stops, including those that are being tried again; blocked_by: blocked records by cause, `handler` or
    `outlet` (an unacknowledged dead letter).

    blocked_error: the last error of a blocked record. It stays while blocked records are tried again, which may take
    long when the dependency hangs. Empty once no record is blocked.
    stalls: the longest first, at most STALLS_MAX. commit_error: why the last commit failed.
    deferred: records with an overdue deferral. control_error: why the current control file was refused.
    """

    at: float = 0.0
    partitions: Mapping[TopicPartition, PartitionStatus] = field(default_factory=dict)
    running: int = 0
    blocked: int = 0
    blocked_error: str = ""
    unfinished: int = 0
    unfinished_bytes: int = 0
    stalls: Sequence[Stall] = ()
    commit_error: str = ""
    deferred: Sequence[Stall] = ()
    control_error: str = ""
    blocked_by: Mapping[str, int] = field(default_factory=dict)


EMPTY = Status()


def status_of(
    partitions: Mapping[TopicPartition, PartitionState],
    runner: Runner,
    intake: Intake,
    commits: Commits,
    *,
    now: float,
    stall_after_s: float,
    deferred: Sequence[Stall],
    control_error: str,
) -> Status:
    """Take a snapshot at `now`, in monotonic seconds."""
    blocked_by = runner.blocked_by()
    blocked = sum(blocked_by.values())
    unfinished_tasks = [task for task in runner.unfinished() if not task.owner.closed]
    return Status(
        now,
        {topic_partition: _partition(part) for topic_partition, part in partitions.items()},
        runner.busy - blocked,
        blocked,
        next((task.error for task in unfinished_tasks if task.blocked), ""),
        intake.records,
        intake.size,
        _stalls(unfinished_tasks, now, stall_after_s),
        commits.error,
        deferred,
        control_error,
        blocked_by,
    )


def set_gauges(metrics: ConsumerMetrics, status: Status) -> None:
    """Set the gauges from a snapshot."""
    metrics.running.set(status.running + status.blocked)
    for reason, count in status.blocked_by.items():
        metrics.blocked.labels(reason).set(count)
    metrics.unfinished.set(status.unfinished)
    metrics.unfinished_bytes.set(status.unfinished_bytes)
    metrics.partitions.set(len(status.partitions))
    metrics.paused.set(sum(part.paused for part in status.partitions.values()))
    metrics.stalled.set(len(status.stalls))


def _stalls(unfinished_tasks: Iterable[Task], now: float, stall_after_s: float) -> list[Stall]:
    before = now - stall_after_s
    old = [
        (began_at, task) for task in unfinished_tasks if (began_at := task.began_at) is not None and began_at <= before
    ]
    old.sort(key=lambda item: item[0])
    return [Stall.of(task, now - began_at) for began_at, task in old[:STALLS_MAX]]


def _partition(part: PartitionState) -> PartitionStatus:
    return PartitionStatus(
        part.tracker.position,
        None if part.committed is None else part.committed.next_offset,
        part.tracker.next_offset,
        part.unfinished,
        part.running,
        len(part.barriers),
        len(part.lanes),
        part.paused,
        part.generation,
    )
