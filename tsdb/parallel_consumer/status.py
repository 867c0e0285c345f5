"""Status: an immutable snapshot of a consumer, readable from any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tsdb.parallel_consumer.record import Partition, key_text
from tsdb.parallel_consumer.work import Work


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. position: its lowest unfinished offset. committed: as acknowledged; None before the first commit.

    next_offset: the next to read. waiting: records in AFTER_ALL that have not run yet.
    """

    position: int
    committed: int | None
    next_offset: int
    unfinished: int
    running: int
    waiting: int
    lanes: int
    paused: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class Stall:
    """A record unfinished for too long. attempts: how often it failed, blocked attempts included."""

    place: Partition
    offset: int
    key: bytes | None
    attempts: int
    age_s: float
    error: str

    @classmethod
    def of(cls, work: Work, age_s: float) -> Stall:
        """The stall of a task; for a block, of its first record."""
        record = work.record
        return cls(record.place, record.offset, record.key, work.failures + work.blocked, age_s, work.error)

    def __str__(self) -> str:
        topic, partition = self.place
        return (
            f"topic {topic}, partition {partition}, offset {self.offset}, {key_text(self.key)}: {self.attempts} failed"
            f" attempts in {self.age_s:.0f} s{': ' + self.error if self.error else ''}"
        )


@dataclass(frozen=True, slots=True)
class Status:
    """Snapshot of the consumer. running: records being handled or sent. blocked: records held up by an unavailable
    dependency, including those being tried again; blocked_by: the same by cause, `handler` or `outlet` (a dead letter
    not acknowledged).

    blocked_error: the last error of a blocked record. It stays while blocked records are tried again, which may take
    long when the dependency hangs. Empty once no record is blocked.
    stalls: the longest first, at most STALLS_MAX. commit_error: why the last commit failed.
    deferred: records with an overdue deferral. control_error: why the current control file was refused.
    """

    at: float = 0.0
    partitions: Mapping[Partition, PartitionStatus] = field(default_factory=dict)
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


STALLS_MAX = 16
EMPTY = Status()
