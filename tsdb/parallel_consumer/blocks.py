"""Blocks: splits a block of records when only part of it is done. Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable

import numpy as np

from tsdb.parallel_consumer.columns import Columns
from tsdb.parallel_consumer.order import Place
from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.work import Work


def block_work(columns: Columns, slot: int, owner: PartitionWork, lane: Hashable) -> Work:
    """A task of many records, or a task of one record."""
    block = columns if len(columns) > 1 else None
    return Work(columns.record(0), slot, owner, lane, columns.size, block=block)


def halves(work: Work, failures: int) -> list[Work]:
    """The block as two tasks, each with the given number of failures."""
    block = work.block
    assert block is not None, "halves of one record"
    middle = len(block) // 2
    parts = [_part(work, start, end) for start, end in ((0, middle), (middle, len(block)))]
    for part in parts:
        part.failures = failures
    return parts


def parted(work: Work, failed: Collection[int]) -> tuple[list[Work], list[Work]]:
    """Split the block: the finished rows, no longer in a lane, and one task per failed row."""
    block = work.block
    assert block is not None, "parts of one record"
    done = np.ones(len(block), np.bool_)
    done[sorted(failed)] = False
    stretches = [block_work(part, work.slot + start, work.owner, Place.FREE) for start, part in block.stretches(done)]
    singles = [_part(work, row, row + 1) for row in np.flatnonzero(~done).tolist()]
    for single in singles:
        single.failures = 1
    return stretches, singles


def _part(work: Work, start: int, end: int) -> Work:
    assert work.block is not None, "a part of one record"
    part = block_work(work.block.part(start, end), work.slot + start, work.owner, work.lane)
    part.began_at, part.crashes = work.began_at, work.crashes
    return part
