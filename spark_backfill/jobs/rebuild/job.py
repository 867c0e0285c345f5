"""The job: build every window of a range and its late chunks again, and write them under the keys they had.

The bytes are those of the chunk stage, so the write changes only lost or damaged records. The job writes window markers
too, but never progress markers: only the running chunk stage may write those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from spark_backfill.building.build import build
from spark_backfill.building.items import Item
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import items_of, plan_partitions
from spark_backfill.building.task import chunk_appender
from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.rebuild.resume import Notes, Rebuilt, begin_rebuild
from spark_backfill.result import RebuildResult
from spark_backfill.worker_log import worker_log
from tsdb.chunks.late_scan import Windows
from tsdb.chunks.records import ChunkRecord
from tsdb.codec.chunk.key import ChunkKey, Kind, RecordKey, WindowKey, decode_key
from tsdb.log.chains import chain_of
from tsdb.model.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "rebuild"


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Filter of the records to write.

    packs: only chunks of these, and no window markers, because a marker counts all packs; None: all records.
    """

    packs: frozenset[int] | None = None

    def __call__(self, record: ChunkRecord) -> bool:
        """Whether to write a record."""
        if self.packs is None:
            return True
        key = decode_key(record.key)
        return isinstance(key, ChunkKey) and key.pack_id in self.packs


def rebuild(
    spark: SparkSession,
    options: BuildOptions,
    windows: Windows,
    packs: Collection[int] | None = None,
    job_id: str | None = None,
) -> RebuildResult:
    """Write all chunks of the windows again. job_id: a run with the id of an interrupted one builds only what that one
    did not finish; None: nothing is noted.

    Raises LostOffsets (before_retention) and InvalidRequest (too_recent), both before anything is written, as
    begin_rebuild, and as the log does.
    """
    wanted = RecordFilter(None if packs is None else frozenset(packs))
    with options.places.open_log() as log:
        found = plan_partitions(log, windows, options.times)
        if job_id is None:
            items = list(items_of(log, found, windows, options.times))
            return _result(windows, items, write_items(spark, options, items, wanted))
        run = begin_rebuild(log, job_id, _fingerprint(windows, packs), found)
        items = list(items_of(log, run.limited(found), windows, options.times))
        left = run.left(items)
        done = write_items(spark, options, left, wanted, run.notes)
        run.forget(log)
    result = _result(windows, items, run.total().plus(done))
    return replace(result, job_id=job_id, items_before=len(items) - len(left))


def _result(windows: Windows, items: Sequence[Item], done: Rebuilt) -> RebuildResult:
    return RebuildResult(from_ms=windows.start_ms, to_ms=windows.end_ms, items=len(items), **asdict(done))


def _fingerprint(windows: Windows, packs: Collection[int] | None) -> str:
    chosen = "all packs" if packs is None else f"packs {','.join(f'{pack:016x}' for pack in sorted(packs))}"
    return f"{windows.start_ms} to {windows.end_ms} ms, {chosen}"


def write_items(
    spark: SparkSession,
    options: BuildOptions,
    items: Sequence[Item],
    wanted: RecordFilter,
    notes: Notes | None = None,
) -> Rebuilt:
    """Build and write these items, one item in each task. notes: each finished item is noted there."""
    if not items:
        return Rebuilt()
    spark.sparkContext.setJobDescription(f"{NAME}: {len(items)} windows and stretches of late minutes")
    tasks = spark.sparkContext.parallelize(items, len(items))
    return tasks.mapPartitions(partial(_write, options, wanted, notes)).fold(Rebuilt(), Rebuilt.plus)


def _write(
    options: BuildOptions, wanted: RecordFilter, notes: Notes | None, items: Iterable[Item]
) -> Iterator[Rebuilt]:
    clock = SystemClock()
    with quoted_errors():
        log = worker_log(options.places, options.topic_id)
        for item in items:
            sender, chain = chunk_appender(log, options, clock), chain_of("chunk-stage", clock.now_ms)
            done = Rebuilt()
            try:
                for record in filter(wanted, build(item, log, options, clock)):
                    key = decode_key(record.key)
                    if isinstance(key, WindowKey):
                        sender.finish()
                    sender.send(item.partition, record.key, record.value, record.headers(chain))
                    _count(done, key, record.size)
                sender.finish()
            except BaseException:
                sender.abandon()
                raise
            if notes is not None:
                notes.write(log, item, done)
            yield done


def _count(done: Rebuilt, key: RecordKey, size: int) -> None:
    done.bytes += size
    match key:
        case ChunkKey(kind=Kind.BASE):
            done.base_chunks += 1
        case ChunkKey():
            done.late_chunks += 1
        case _:
            done.windows += 1
