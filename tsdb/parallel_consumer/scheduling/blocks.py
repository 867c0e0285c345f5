"""Blocks: splits a block of records when only part of it is done. Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable

import numpy as np

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.order import SpecialLane
from tsdb.parallel_consumer.scheduling.task import Task, TaskOwner


def block_task(columns: RecordColumns, slot: int, owner: TaskOwner, lane: Hashable) -> Task:
    """A task for the rows of a block. A single row becomes a task of one record."""
    block = columns if len(columns) > 1 else None
    return Task(columns.record(0), slot, owner, lane, columns.size, block=block)


def halves(task: Task, failures: int) -> list[Task]:
    """The block as two tasks, each with the given number of failures."""
    block = task.block
    assert block is not None, "halves of one record"
    middle = len(block) // 2
    parts = [_part(task, start, end) for start, end in ((0, middle), (middle, len(block)))]
    for part in parts:
        part.failures = failures
    return parts


def split_failed(task: Task, failed: Collection[int]) -> tuple[list[Task], list[Task]]:
    """Split the block: the finished rows, no longer in a lane, and one task per failed row."""
    block = task.block
    assert block is not None, "parts of one record"
    done = np.ones(len(block), np.bool_)
    done[sorted(failed)] = False
    ranges = [
        block_task(part, task.slot + start, task.owner, SpecialLane.UNORDERED) for start, part in block.ranges(done)
    ]
    singles = [_part(task, row, row + 1) for row in np.flatnonzero(~done).tolist()]
    for single in singles:
        single.failures = 1
    return ranges, singles


def _part(task: Task, start: int, end: int) -> Task:
    assert task.block is not None, "a part of one record"
    part = block_task(task.block.part(start, end), task.slot + start, task.owner, task.lane)
    part.began_at, part.crashes = task.began_at, task.crashes
    return part
