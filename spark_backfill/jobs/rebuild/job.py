"""The job: build every window of a range and its late chunks again, and write them under the keys they had.

The bytes are those of the chunk stage, so the write changes only lost or damaged records. The job writes window markers
too, but never progress markers: only the running chunk stage may write those. Windows that the log no longer has whole
are copied from history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from spark_backfill.building.build import build
from spark_backfill.building.items import Item
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import first_whole_ms, items_of, plan_partitions
from spark_backfill.building.task import chunk_appender
from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.noted_run import Notes
from spark_backfill.jobs.rebuild.from_history import complete_history, copy_holes, copy_items, shares_of
from spark_backfill.jobs.rebuild.resume import HistoryItem, Rebuilt, begin_rebuild, history_items, left, note
from spark_backfill.result import RebuildResult
from spark_backfill.worker_log import worker_log
from tsdb.chunks.late_scan import Windows
from tsdb.chunks.records import ChunkRecord
from tsdb.codec.chunk.key import ChunkKey, Kind, RecordKey, WindowKey, decode_key
from tsdb.log.chains import chain_of
from tsdb.log.interface import METRICS, Log
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
    did not finish; None: nothing is noted. The result is ok when no row of history was refused.

    Raises LostOffsets (before_retention) without a history, and InvalidRequest (too_recent), both before anything is
    written, Unavailable (history_behind, history_replaced), as begin_rebuild, and as log and history do.
    """
    chosen = None if packs is None else frozenset(packs)
    with options.places.open_log() as log:
        seam_ms = _seam_ms(log, options, windows)
        recent = Windows(seam_ms, windows.end_ms)
        found = plan_partitions(log, recent, options.times) if seam_ms < windows.end_ms else []
        shares = shares_of(options) if windows.start_ms < seam_ms else 1
        run, notes = None, None
        older = history_items(windows.start_ms, seam_ms, shares)
        if job_id is not None:
            run = begin_rebuild(log, job_id, _fingerprint(windows, packs), found, seam_ms, shares)
            found, notes = run.limited(found), run.notes
            # The log may have been trimmed since the first run: what it has lost is in history.
            older = history_items(windows.start_ms, run.seam_ms, run.shares)
            older += history_items(run.seam_ms, seam_ms, shares)
        items = list(items_of(log, found, recent, options.times))
        done = run.total() if run else Rebuilt()
        todo = left(run, items)
        # The log first: it loses records while the job runs.
        done = done.plus(write_items(spark, options, todo, RecordFilter(chosen), notes))
        older_todo = left(run, older)
        if older_todo:
            done = done.plus(_from_history(spark, log, options, older_todo, chosen, notes))
        if run is not None:
            run.noted.forget(log)
    return RebuildResult(
        ok=not done.refused,
        from_ms=windows.start_ms,
        to_ms=windows.end_ms,
        job_id=job_id,
        log_from_ms=seam_ms,
        items=len(items) + len(older),
        items_before=len(items) + len(older) - len(todo) - len(older_todo),
        **asdict(done),
    )


def _seam_ms(log: Log, options: BuildOptions, windows: Windows) -> int:
    """Start of the first window that comes from the log; all of them without a history."""
    if not options.places.history:
        return windows.start_ms
    return min(max(windows.start_ms, first_whole_ms(log, options.times)), windows.end_ms)


def _from_history(
    spark: SparkSession,
    log: Log,
    options: BuildOptions,
    items: Sequence[HistoryItem],
    packs: frozenset[int] | None,
    notes: Notes | None,
) -> Rebuilt:
    done = Rebuilt()
    with options.places.open_history() as history:
        end_ms = max(item.windows.end_ms for item in items)
        claims = complete_history(history, options, log.partitions(METRICS), end_ms)
        for windows, group in groupby(items, key=lambda item: item.windows):
            # Holes have no note: they are written as long as any item is left.
            done = done.plus(copy_holes(history, log, windows, packs))
            done = done.plus(copy_items(spark, options, list(group), packs, notes))
        claims.check(history)
    return done


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
                note(notes, log, item, done)
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
