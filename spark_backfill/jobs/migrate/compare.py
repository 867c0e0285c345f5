"""Compare: every row of two histories, by digests of their bytes. Nothing is written.

Loaders write the source meanwhile, and may write the target. So a difference counts only where no record of `chunks` or
`series` has named the row since the commits of the plan: such a record is still to come to one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from functools import partial
from operator import add
from typing import TYPE_CHECKING

from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.migrate.copying import SeriesItem, announcements, series_items
from spark_backfill.jobs.verify.findings import Problem, digest
from spark_backfill.jobs.verify.gather import TopicStretch
from spark_backfill.jobs.verify.job import ROWS_MAX, STRETCH_RECORDS
from spark_backfill.persisted import persisted
from spark_backfill.places import Places
from spark_backfill.result import PackDifference
from spark_backfill.worker_log import batches_between, worker_log
from tsdb.backup.manifest import BackupPlan
from tsdb.codec.chunk.key import ChunkKey, decode_key, encode_key
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.interface import RowSplit
from tsdb.log.interface import CHUNKS, METRICS, SERIES

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

SPLITS_MIN = 16
SPLIT_BYTES = 256 << 20
SHARES = 64
TARGET = "target"  # The place of a difference.

RowKey = tuple[str, bytes]
"""Topic, and the key that a record of the row has there."""

Digests = tuple[bytes | None, bytes | None]
"""Digest of the row in the source and in the target; None: the history does not have it."""

Difference = tuple[RowKey, Digests]


@dataclass(frozen=True, slots=True)
class HistoryComparison:
    """compared: rows of both histories. missing, differing, extra: chunks that the target lacks, has with other bytes,
    or has alone. series: rows of the series index that differ in any way. rows: the first differences by window."""

    compared: int
    missing: int
    differing: int
    extra: int
    series: int
    rows: tuple[PackDifference, ...]

    @property
    def problems(self) -> int:
        """Number of rows that differ."""
        return self.missing + self.differing + self.extra + self.series


def compare_histories(spark: SparkSession, source: Places, target: Places, plan: BackupPlan) -> HistoryComparison:
    """Compare all rows. plan: its positions are the commits of the source's loaders before the copy."""
    context = spark.sparkContext
    context.setJobDescription("migrate: compare")
    tasks = max(context.defaultParallelism, 8)
    both = [_rows(spark, places, side) for side, places in enumerate((source, target))]
    seen = context.union([one for pair in both for one in pair]).reduceByKey(_joined, tasks)
    with persisted(seen.mapPartitions(_apart)) as found:
        compared = found.map(lambda one: one if isinstance(one, int) else 1).fold(0, add)
        # Read after the rows, so that it has each record that changed one of them.
        stretches = _since(source, plan)
        naming = partial(_named, source, plan.topic_ids[METRICS])
        named = context.parallelize(stretches, max(len(stretches), 1)).mapPartitions(naming).distinct().map(_as_pair)
        lasting = found.flatMap(_difference).subtractByKey(named)
        with persisted(lasting) as left:
            problems = Counter(dict(left.map(_problem).reduceByKey(add, 1).collect()))
            rows = left.filter(_is_chunk).map(_place).reduceByKey(add, 1).takeOrdered(ROWS_MAX)
    return HistoryComparison(
        compared=compared,
        missing=problems[CHUNKS, Problem.MISSING.value],
        differing=problems[CHUNKS, Problem.DIFFERING.value],
        extra=problems[CHUNKS, Problem.EXTRA.value],
        series=sum(count for (topic, _), count in problems.items() if topic == SERIES),
        rows=tuple(PackDifference(*cell, keys=count) for cell, count in rows),
    )


def _rows(spark: SparkSession, places: Places, side: int) -> list[RDD[Difference]]:
    with places.open_history() as store:
        splits = store.row_splits(max(SPLITS_MIN, store.chunk_bytes() // SPLIT_BYTES))
        names = series_items(store, SHARES)
    chunks = spark.sparkContext.parallelize(splits, len(splits)).mapPartitions(partial(_chunks, places, side))
    series = spark.sparkContext.parallelize(names, max(len(names), 1)).mapPartitions(partial(_series, places, side))
    return [chunks, series]


def _chunks(places: Places, side: int, splits: Iterable[RowSplit]) -> Iterator[Difference]:
    with quoted_errors(), places.open_history() as store:
        for split in splits:
            for piece in store.scan(split):
                for row in piece:
                    yield (CHUNKS, encode_key(row.key)), _of_side(side, digest(row.value))


def _series(places: Places, side: int, items: Iterable[SeriesItem]) -> Iterator[Difference]:
    with quoted_errors(), places.open_history() as store:
        for item in items:
            for epoch, name in item.names:
                for announcement, partition in announcements(epoch, store.series(epoch, name)):
                    key, value = encode_announcement(*astuple(announcement))
                    yield (SERIES, key), _of_side(side, digest(value + partition.to_bytes(4)))


def _of_side(side: int, found: bytes) -> Digests:
    return (None, found) if side else (found, None)


def _joined(one: Digests, other: Digests) -> Digests:
    return one[0] or other[0], one[1] or other[1]


def _apart(pairs: Iterable[Difference]) -> Iterator[Difference | int]:
    """The rows that differ, then the number of those that are equal."""
    equal = 0
    for pair in pairs:
        if pair[1][0] == pair[1][1]:
            equal += 1
        else:
            yield pair
    yield equal


def _difference(one: Difference | int) -> list[Difference]:
    return [] if isinstance(one, int) else [one]


def _since(source: Places, plan: BackupPlan) -> list[tuple[str, TopicStretch]]:
    """The records since the plan's positions, in stretches."""
    found = []
    with source.open_log() as log:
        for topic in (CHUNKS, SERIES):
            for number, marks in log.watermarks(topic, sorted(plan.positions)).items():
                at = getattr(plan.positions[number], topic)
                begin = max(marks.low, at.next_offset if at else 0)
                for first in range(begin, marks.high, STRETCH_RECORDS):
                    found.append((topic, TopicStretch(number, first, min(first + STRETCH_RECORDS, marks.high))))
    return found


def _named(source: Places, topic_id: str, stretches: Iterable[tuple[str, TopicStretch]]) -> Iterator[RowKey]:
    """Keys of the records in these stretches, repeated ones included."""
    with quoted_errors():
        log = worker_log(source, topic_id)
        for topic, one in stretches:
            for batch in batches_between(log, topic, one.partition, one.first_offset, one.end_offset):
                for record in map(batch.record, range(len(batch.offsets))):
                    if record.key is not None:
                        yield topic, record.key


def _as_pair(key: RowKey) -> tuple[RowKey, None]:
    return key, None


def _problem(pair: Difference) -> tuple[tuple[str, str], int]:
    (topic, _), digests = pair
    return (topic, _problem_of(digests).value), 1


def _problem_of(digests: Digests) -> Problem:
    if digests[1] is None:
        return Problem.MISSING
    return Problem.EXTRA if digests[0] is None else Problem.DIFFERING


def _is_chunk(pair: Difference) -> bool:
    return pair[0][0] == CHUNKS


def _place(pair: Difference) -> tuple[tuple[int, str, str, str, str], int]:
    key = decode_key(pair[0][1])
    assert isinstance(key, ChunkKey), "a row of chunks"
    cell = key.window_start_ms, f"{key.pack_id:016x}", key.kind.name.lower(), TARGET, _problem_of(pair[1]).value
    return cell, 1
