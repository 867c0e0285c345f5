"""Stand-in for a Spark session: RDDs whose tasks run in this process, one after another, at their action.

Jobs over RDDs are tested with it where the test is about the job and not about Spark. No JVM starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import chain
from typing import Any, cast

from pyspark.sql import SparkSession

Part = Iterable[Any]
Parts = Callable[[], Iterator[Part]]


class LocalRows:
    """An RDD. parts: makes the partitions of an action anew. Method names are Spark's."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def mapPartitions(self, of: Callable[[Part], Part]) -> LocalRows:
        return LocalRows(lambda: (of(part) for part in self._parts()))

    def mapPartitionsWithIndex(self, of: Callable[[int, Part], Part]) -> LocalRows:
        return LocalRows(lambda: (of(number, part) for number, part in enumerate(self._parts())))

    def map(self, of: Callable[[Any], Any]) -> LocalRows:
        return self.mapPartitions(lambda part: map(of, part))

    def filter(self, wanted: Callable[[Any], bool]) -> LocalRows:
        return self.mapPartitions(lambda part: filter(wanted, part))

    def flatMap(self, of: Callable[[Any], Iterable[Any]]) -> LocalRows:
        return self.mapPartitions(lambda part: chain.from_iterable(map(of, part)))

    def keyBy(self, of: Callable[[Any], Any]) -> LocalRows:
        return self.map(lambda row: (of(row), row))

    def values(self) -> LocalRows:
        return self.map(lambda pair: pair[1])

    def union(self, other: LocalRows) -> LocalRows:
        return LocalRows(lambda: chain(self._parts(), other._parts()))

    def partitionBy(self, parts: int, place: Callable[[Any], int] = hash) -> LocalRows:
        def placed() -> Iterator[Part]:
            found: list[list[Any]] = [[] for _ in range(parts)]
            for key, value in chain.from_iterable(self._parts()):
                found[place(key) % parts].append((key, value))
            return iter(found)

        return LocalRows(placed)

    def reduceByKey(self, plus: Callable[[Any, Any], Any], parts: int = 1) -> LocalRows:
        def reduced() -> Iterator[Part]:
            found: dict[Any, Any] = {}
            for key, value in self.collect():
                found[key] = plus(found[key], value) if key in found else value
            return iter([list(found.items())])

        return LocalRows(reduced)

    def subtractByKey(self, other: LocalRows) -> LocalRows:
        def rest() -> Iterator[Part]:
            gone = {key for key, _ in other.collect()}
            return iter([[pair for pair in self.collect() if pair[0] not in gone]])

        return LocalRows(rest)

    def distinct(self) -> LocalRows:
        return LocalRows(lambda: iter([list(dict.fromkeys(self.collect()))]))

    def persist(self) -> LocalRows:
        kept = [list(part) for part in self._parts()]
        self._parts = lambda: iter(kept)
        return self

    def unpersist(self) -> LocalRows:
        return self

    def collect(self) -> list[Any]:
        return list(chain.from_iterable(self._parts()))

    def collectAsMap(self) -> dict[Any, Any]:
        return dict(self.collect())

    def count(self) -> int:
        return len(self.collect())

    def take(self, number: int) -> list[Any]:
        return self.collect()[:number]

    def takeOrdered(self, number: int) -> list[Any]:
        return sorted(self.collect())[:number]

    def fold(self, zero: Any, plus: Callable[[Any, Any], Any]) -> Any:
        return reduce(plus, self.collect(), zero)


class LocalContext:
    """A SparkContext of LocalRows."""

    defaultParallelism = 2

    def setJobDescription(self, text: str) -> None:
        assert text

    def parallelize(self, rows: Iterable[Any], parts: int) -> LocalRows:
        held = list(rows)
        return LocalRows(lambda: iter([held[part::parts] for part in range(parts)]))

    def union(self, parts: list[LocalRows]) -> LocalRows:
        return reduce(LocalRows.union, parts)


class LocalSession:
    """A session whose context is a LocalContext."""

    sparkContext = LocalContext()


LOCAL = cast(SparkSession, LocalSession())
