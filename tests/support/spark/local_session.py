"""LocalSession: a SparkSession without Spark, for rules of jobs on RDDs. Tasks run one after another in this process.

Retries, killed workers, speculation and memory are left to tests/spark.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, cast

from pyspark.sql import SparkSession

Parts = Sequence[Sequence[Any]]


class LocalRows:
    """The methods of an RDD that jobs call, over a list a task. Evaluated at once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def mapPartitions(self, function: Callable[[Iterator[Any]], Iterable[Any]]) -> LocalRows:
        return LocalRows([list(function(iter(part))) for part in self._parts])

    def map(self, function: Callable[[Any], Any]) -> LocalRows:
        return self.mapPartitions(lambda rows: map(function, rows))

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> LocalRows:
        return self.mapPartitions(lambda rows: chain.from_iterable(map(function, rows)))

    def filter(self, function: Callable[[Any], bool]) -> LocalRows:
        return self.mapPartitions(lambda rows: filter(function, rows))

    def reduceByKey(self, function: Callable[[Any, Any], Any], tasks: int | None = None) -> LocalRows:
        found: dict[Any, Any] = {}
        for key, value in self.collect():
            found[key] = function(found[key], value) if key in found else value
        return LocalRows(_split(list(found.items()), tasks or len(self._parts)))

    def distinct(self) -> LocalRows:
        return LocalRows(_split(list(dict.fromkeys(self.collect())), len(self._parts)))

    def collect(self) -> list[Any]:
        return [row for part in self._parts for row in part]

    def collectAsMap(self) -> dict[Any, Any]:
        return dict(self.collect())

    def count(self) -> int:
        return len(self.collect())

    def fold(self, zero: Any, function: Callable[[Any, Any], Any]) -> Any:
        return functools.reduce(function, self.collect(), zero)

    def persist(self) -> LocalRows:
        return self

    def unpersist(self) -> LocalRows:
        return self


class LocalSession:
    """A session and its context. on_work: called before a job gives a description of its next work."""

    defaultParallelism = 1

    def __init__(self, on_work: Callable[[], None] = lambda: None) -> None:
        self._on_work = on_work

    @property
    def sparkContext(self) -> LocalSession:
        return self

    def setJobDescription(self, text: str) -> None:
        self._on_work()

    def parallelize(self, rows: Iterable[Any], tasks: int) -> LocalRows:
        return LocalRows(_split(list(rows), tasks))


def local_session() -> SparkSession:
    """A LocalSession, with the type that jobs expect."""
    return cast(SparkSession, LocalSession())


def _split(rows: Sequence[Any], tasks: int) -> Parts:
    return [rows[number::tasks] for number in range(tasks)]
