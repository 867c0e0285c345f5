"""Stall: a task that is unfinished for too long."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.parallel_consumer.record import TopicPartition, key_text
from tsdb.parallel_consumer.scheduling.task import Task

STALLS_MAX = 16  # Most stalls in one Status.


@dataclass(frozen=True, slots=True)
class Stall:
    """A record that is unfinished for too long. attempts: number of its failures, blocked attempts included."""

    topic_partition: TopicPartition
    offset: int
    key: bytes | None
    attempts: int
    age_s: float
    error: str

    @classmethod
    def of(cls, task: Task, age_s: float) -> Stall:
        """The stall of a task. The stall of a block is the stall of its first record."""
        record = task.record
        return cls(record.topic_partition, record.offset, record.key, task.failures + task.blocked, age_s, task.error)

    def __str__(self) -> str:
        topic, partition = self.topic_partition
        return (
            f"topic {topic}, partition {partition}, offset {self.offset}, {key_text(self.key)}: {self.attempts} failed"
            f" attempts in {self.age_s:.0f} s{': ' + self.error if self.error else ''}"
        )
