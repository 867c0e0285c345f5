"""Status snapshots: the consumer's state as a Status and as gauges. Pure but for the gauges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tsdb.parallel_consumer.commits import Commits
from tsdb.parallel_consumer.intake import Intake
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.record import Partition
from tsdb.parallel_consumer.runner import Runner
from tsdb.parallel_consumer.status import STALLS_MAX, PartitionStatus, Stall, Status
from tsdb.parallel_consumer.work import Work


def status_of(
    partitions: Mapping[Partition, PartitionWork],
    runner: Runner,
    intake: Intake,
    commits: Commits,
    *,
    now: float,
    stall_after_s: float,
    deferred: Sequence[Stall],
    control_error: str,
) -> Status:
    """Snapshot at `now`, monotonic seconds."""
    blocked_by = runner.blocked_by()
    blocked = sum(blocked_by.values())
    unended = [work for work in runner.unended() if not work.owner.closed]
    return Status(
        now,
        {place: _partition(part) for place, part in partitions.items()},
        runner.busy - blocked,
        blocked,
        next((work.error for work in unended if work.blocked), ""),
        intake.records,
        intake.size,
        _stalls(unended, now, stall_after_s),
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


def _stalls(unended: Iterable[Work], now: float, stall_after_s: float) -> list[Stall]:
    before = now - stall_after_s
    old = [(began_at, work) for work in unended if (began_at := work.began_at) is not None and began_at <= before]
    old.sort(key=lambda item: item[0])
    return [Stall.of(work, now - began_at) for began_at, work in old[:STALLS_MAX]]


def _partition(part: PartitionWork) -> PartitionStatus:
    return PartitionStatus(
        part.tracker.position,
        None if part.committed is None else part.committed.next_offset,
        part.tracker.next_offset,
        part.unfinished,
        part.running,
        len(part.barriers),
        len(part.lanes),
        part.paused,
        part.epoch,
    )
