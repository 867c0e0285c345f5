"""Task: represents one record, or a block of records, inside the consumer."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Record, TopicPartition


class TaskOwner(Protocol):
    """The partition of a task, with the fields that scheduling uses.

    assigned_at: monotonic seconds. running: number of running records. draining: no further record begins. closed:
    removed; completions are late.

    """

    topic_partition: TopicPartition
    assigned_at: float
    running: int
    draining: bool
    closed: bool

    def finish(self, task: Task) -> Task | None:
        """Record a finished task; returns the next of its lane, which may run now."""

    def touch(self, task: Task) -> None:
        """Include the attempts of the task in the next commit."""

    def replace_running(self, task: Task, parts: list[Task]) -> list[Task]:
        """Replace a running block by its parts, at least one, in order; returns those that may run at once."""

    def take_followers(self, task: Task, count: int, size: int) -> list[Task]:
        """Take tasks that wait behind this one: at most `count`, none larger than `size`."""

    def give_back(self, tasks: list[Task]) -> None:
        """Put back followers that did not run, in order; the task before them is not finished."""

    def enter_newest(self, task: Task) -> tuple[bool, Task | None]:
        """Append to the task's lane, or replace the last waiting task of the same key.

        Returns whether it may run now, and the replaced task.
        """


class TaskStreak(Protocol):
    """The streak of a task, as far as scheduling uses it."""

    owner: TaskOwner
    began_at: float
    size: int

    @property
    def over(self) -> bool:
        """Whether all tasks of the streak have ended or were recalled."""

    def ended(self, task: Task) -> Task | None:
        """The consumer received a completion: returns the task now running, or None after the last."""

    def recall(self, keep: int = 0) -> list[Task]:
        """Remove all untaken tasks except the first `keep`, in order. Taken ones end as usual."""


@dataclass(slots=True, eq=False)
class Task:
    """One unfinished record, or a block of them.

    slot: its index in the tracker. size: bytes of key and value. run: number of its starts in this process; a
    completion of an earlier start has a lower number. blocked: failures in a row caused by an unavailable dependency.
    outgoing: the record sent in its place, once one is. began_at: monotonic seconds of its first start. stage: number
    of limits passed. deferred: its handler has returned, and a Deferral finishes it. block: the rows of a block, whose
    first is `record`; row i has slot + i in the tracker. streak: the streak it was handed over in; None once it is the
    last of it to end.
    """

    record: Record
    slot: int
    owner: TaskOwner
    lane: Hashable
    size: int
    failures: int = 0
    crashes: int = 0
    blocked: int = 0
    run: int = 0
    running: bool = False
    outgoing: OutRecord | None = None
    outgoing_kind: str = ""
    began_at: float | None = None
    error: str = ""
    stage: int = 0
    deferred: bool = False
    block: RecordColumns | None = None
    streak: TaskStreak | None = None

    @property
    def count(self) -> int:
        return 1 if self.block is None else len(self.block)

    @property
    def span(self) -> int:
        """Number of offsets from its first record to its last."""
        return 1 if self.block is None else int(self.block.offsets[-1]) - self.record.offset + 1
