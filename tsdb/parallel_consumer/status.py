"""Status: what a consumer shows of itself, as one immutable value that any thread may read."""

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
    """A record that has not ended for longer than it should. attempts: how often it failed, blocked included."""

    place: Partition
    offset: int
    key: bytes | None
    attempts: int
    age_s: float
    error: str

    @classmethod
    def of(cls, work: Work, age_s: float) -> Stall:
        """What there is to say of a work; of a block, its first record."""
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
    """The consumer. running: records being handled or sent. blocked: records that something away holds up, those that
    are being tried again included; blocked_by: the same by what, `handler` or `outlet` (a dead letter not taken).

    blocked_error: what was last said of it; also while those that waited try again, which may take long when what is
    away hangs. Empty once none of them is left.
    stalls: the longest first, at most STALLS_MAX. commit_error: why the last commit failed.
    deferred: records whose deferred end is overdue. control_error: why the control file as it is was not taken.
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
