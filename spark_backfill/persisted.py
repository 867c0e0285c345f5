"""Persisted data: keeps results of tasks that several Spark jobs read, and drops them from the executors at the end of
a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark import RDD

Item = TypeVar("Item")


@contextmanager
def persisted(data: RDD[Item]) -> Iterator[RDD[Item]]:
    """Keep the data for the block. Without the end, a session that runs job after job would keep all of it."""
    data.persist()
    try:
        yield data
    finally:
        data.unpersist()
