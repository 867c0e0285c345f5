"""Health of a loader: the lag of each partition, and the problem that stops all partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tsdb.log.interface import CHUNKS, SERIES
from tsdb.model.errors import TsdbError
from tsdb.ops.health import PartitionHealth
from tsdb.parallel_consumer import PartitionStatus, Status, TopicPartition

SILENT_MAX_S = 10.0  # A consumer publishes no new status while it waits for a log that does not answer.
HIGH_WATERMARK_AGE_MAX_S = 15.0  # Without a fresh high watermark the lag of a partition is unknown.


@dataclass(frozen=True, slots=True)
class HighWatermarks:
    """High watermarks. at: time of their request in monotonic seconds; None: not requested yet."""

    high: Mapping[TopicPartition, int] = field(default_factory=dict)
    at: float | None = None


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """The problem that holds up all partitions; reason is empty without a problem."""

    reason: str = ""
    message: str = ""


def health_problem(
    status: Status,
    blocked_for_s: float,
    patience_s: float,
    now: float,
    refusal: TsdbError | None = None,
    *,
    is_spare: bool = True,
) -> HealthProblem:
    """Reasons: log_unavailable (the consumer waits for it), that of `refusal` (partitions cannot be taken), joining (no
    partition yet), history_blocked (for longer than patience_s), stalled, commit_failing. is_spare: whether it may have
    no partition, because other loaders have all.
    """
    if status.at and now - status.at > SILENT_MAX_S:
        return HealthProblem("log_unavailable", f"no step for {now - status.at:.0f} s")
    if refusal is not None:
        return HealthProblem(refusal.reason, f"no partitions can be taken: {refusal.message}")
    if not status.partitions and not is_spare:
        return HealthProblem("joining", "no partition yet: the group of loaders has some for this one")
    if status.blocked_error and blocked_for_s >= patience_s:
        return HealthProblem("history_blocked", status.blocked_error)
    if status.stalls:
        return HealthProblem("stalled", str(status.stalls[0]))
    if status.commit_error:
        return HealthProblem("commit_failing", status.commit_error)
    return HealthProblem()


def partition_health(
    status: Status, ends: HighWatermarks, problem: HealthProblem, now: float
) -> dict[int, PartitionHealth]:
    """Health by partition number; `chunks` and `series` count together. A lag alone does not make the state bad; it is
    a detail.
    """
    numbers = sorted({number for _, number in status.partitions})
    reason = problem.reason
    if not reason and not _answers(ends, now):
        reason = "log_unavailable"
    return {
        number: PartitionHealth(not reason, reason, _details(number, status, ends, problem, now)) for number in numbers
    }


def lag_records(place: TopicPartition, part: PartitionStatus, ends: HighWatermarks, now: float) -> int | None:
    """Records between the finished position and the end of the log. None while the end is unknown, and when an old
    answer gives 0, because records may have come since.
    """
    high = ends.high.get(place)
    if high is None:
        return None
    lag = max(0, high - part.position)
    return lag if lag or _answers(ends, now) else None


def _answers(ends: HighWatermarks, now: float) -> bool:
    return ends.at is not None and now - ends.at <= HIGH_WATERMARK_AGE_MAX_S


def _details(
    number: int, status: Status, ends: HighWatermarks, problem: HealthProblem, now: float
) -> dict[str, int | float | str | None]:
    details: dict[str, int | float | str | None] = {}
    for topic in (CHUNKS, SERIES):
        part = status.partitions.get((topic, number))
        if part is not None:
            details |= {
                f"{topic}_position": part.position,
                f"{topic}_committed": part.committed,
                f"{topic}_lag_records": lag_records((topic, number), part, ends, now),
            }
    return details | ({"message": problem.message} if problem.message else {})
