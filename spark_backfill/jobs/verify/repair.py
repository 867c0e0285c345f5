"""Repair: write missing and differing chunks again from the log, and delete extra ones.

All records go to `chunks`, and the loader brings them into history. So a chunk that is wrong only in history is sent to
`chunks` again, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spark_backfill.building.items import Item, LateItem
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import PartitionRange
from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.rebuild.job import RecordFilter, write_items
from spark_backfill.jobs.verify.findings import DERIVED, Finding, Problem
from spark_backfill.jobs.verify.gather import TopicStretch
from spark_backfill.worker_log import batches_between, worker_log
from spark_backfill.writing.appender import TaskAppender
from tsdb.codec.chunk.key import ChunkKey, Kind, WindowKey, encode_key
from tsdb.log.interface import CHUNKS

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

SENT_AGAIN_MAX = 100_000  # Keys sent to every task; with more lost keys, another run repairs the rest.

_Window = tuple[Kind, int | None, int]  # Kind, partition, window.
_Held = tuple[int, int, bytes]  # (offset, partition, value): the last offset is the greatest.


def repair(
    spark: SparkSession,
    build: BuildOptions,
    findings: RDD[Finding],
    items: Sequence[Item],
    found: Sequence[PartitionRange],
    stretches: Sequence[TopicStretch],
) -> int:
    """Repair all findings that can be repaired; return the number of records written.

    Extra chunks are deleted only in windows that begin after the log's first record. An extra chunk of an earlier
    window may come from an earlier log.
    """
    windows = frozenset(findings.filter(_is_to_write).map(_window_of).distinct().collect())
    written = write_items(spark, build, [item for item in items if _needs(item, windows)], RecordFilter())
    began_ms = max(one.began_ms for one in found)
    deleted = findings.filter(partial(_is_ours_to_delete, began_ms)).mapPartitions(partial(_delete, build)).sum()
    sent = _send_again(spark, build, findings, stretches)
    return written.base_chunks + written.late_chunks + written.windows + int(deleted) + sent


def _is_derived(finding: Finding) -> bool:
    return isinstance(finding.key, WindowKey) or finding.key.kind in DERIVED


def _is_to_write(finding: Finding) -> bool:
    return _is_derived(finding) and finding.problem is not Problem.EXTRA


def _is_lost(finding: Finding) -> bool:
    return not _is_derived(finding) and finding.problem is not Problem.EXTRA


def _is_ours_to_delete(began_ms: int, finding: Finding) -> bool:
    key = finding.key
    if finding.problem is not Problem.EXTRA or not isinstance(key, ChunkKey):
        return False
    return key.kind in DERIVED and key.window_start_ms >= began_ms


def _window_of(finding: Finding) -> _Window:
    key = finding.key
    kind = key.kind if isinstance(key, ChunkKey) else Kind.BASE
    return kind, finding.partition, key.window_start_ms


def _needs(item: Item, windows: Collection[_Window]) -> bool:
    if isinstance(item, LateItem):
        return any(kind is Kind.LATE and partition == item.partition for kind, partition, _ in windows)
    return (Kind.BASE, item.partition, item.start_ms) in windows


def _delete(build: BuildOptions, findings: Iterable[Finding]) -> Iterator[int]:
    """Append null records. A key that only history has goes to partition 0, as any partition serves."""
    with quoted_errors():
        appender = TaskAppender(worker_log(build.places, build.topic_id), CHUNKS)
        for finding in findings:
            assert isinstance(finding.key, ChunkKey), "only chunks are taken out"
            appender.send(finding.partition or 0, encode_key(finding.key), None)
        appender.finish()
        yield appender.sent_records


def _send_again(
    spark: SparkSession, build: BuildOptions, findings: RDD[Finding], stretches: Sequence[TopicStretch]
) -> int:
    """Send imports and folds that history has lost again: the log does not give them, but `chunks` has them."""
    lost = findings.filter(_is_lost).map(lambda finding: encode_key(finding.key)).take(SENT_AGAIN_MAX)
    if not lost:
        return 0
    held = spark.sparkContext.parallelize(stretches, max(len(stretches), 1))
    last = held.mapPartitions(partial(_records_of, build, frozenset(lost))).reduceByKey(max)
    return int(last.mapPartitions(partial(_append, build)).sum())


def _records_of(
    build: BuildOptions, keys: frozenset[bytes], stretches: Iterable[TopicStretch]
) -> Iterator[tuple[bytes, _Held]]:
    with quoted_errors():
        log = worker_log(build.places, build.topic_id)
        for one in stretches:
            for batch in batches_between(log, CHUNKS, one.partition, one.first_offset, one.end_offset):
                for record in map(batch.record, range(len(batch.offsets))):
                    if record.key in keys and record.value is not None:
                        yield record.key, (record.offset, one.partition, record.value)


def _append(build: BuildOptions, records: Iterable[tuple[bytes, _Held]]) -> Iterator[int]:
    with quoted_errors():
        appender = TaskAppender(worker_log(build.places, build.topic_id), CHUNKS)
        for key, (_, partition, value) in records:
            appender.send(partition, key, value)
        appender.finish()
        yield appender.sent_records
