"""From history: the chunks of windows that the log no longer has whole, written to `chunks` again from their rows.

History holds every chunk of such a window under its key: base and late, imports, folds, and derived series. A row that
does not decode is counted and not written, because `chunks` may have the good record under its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from spark_backfill.building.options import BuildOptions
from spark_backfill.building.task import chunk_appender
from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.noted_run import Notes
from spark_backfill.jobs.rebuild.resume import HistoryItem, Rebuilt, note
from spark_backfill.packs import PackSpan, packs_of
from spark_backfill.worker_log import worker_log
from tsdb.chunks.late_scan import Windows
from tsdb.chunks.records import hole_record
from tsdb.codec.chunk.key import encode_key
from tsdb.history.claims import ClaimsSnapshot
from tsdb.history.fold import is_sound
from tsdb.history.interface import ChunkRow, ChunkStore, WindowRange
from tsdb.log.interface import CHUNKS, Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARES_MIN, SHARES_MAX = 16, 1_024
SHARE_BYTES = 256 << 20  # History that one task reads at most, as long as there are fewer than SHARES_MAX.
ALL_IDS = 1 << 64

Packs = frozenset[int] | None
"""Packs to write; None: all."""


def shares_of(options: BuildOptions) -> int:
    """Number of items into which history is split; 1 without a history."""
    if not options.places.history:
        return 1
    with options.places.open_history() as history:
        return min(max(SHARES_MIN, history.chunk_bytes() // SHARE_BYTES), SHARES_MAX)


def complete_history(history: ChunkStore, options: BuildOptions, partitions: int, end_ms: int) -> ClaimsSnapshot:
    """The claims of history, which has all windows before end_ms. Raises Unavailable (history_behind)."""
    claims = ClaimsSnapshot.read(history, options.topic_id)
    behind = [
        number
        for number in range(partitions)
        if number not in claims.loaded or claims.loaded[number].emitted_through_ms < end_ms
    ]
    if behind:
        raise Unavailable(
            f"the log no longer has windows before {end_ms} ms, and history does not have all of them in partitions"
            f" {behind[:10]}: look whether a loader runs",
            reason="history_behind",
        )
    return claims


def copy_items(
    spark: SparkSession, options: BuildOptions, items: Sequence[HistoryItem], packs: Packs, notes: Notes | None
) -> Rebuilt:
    """Write the rows of these items, which have the same windows. notes: each finished item is noted there."""
    if not items:
        return Rebuilt()
    windows, context = items[0].windows, spark.sparkContext
    context.setJobDescription(f"rebuild: history of [{windows.start_ms}, {windows.end_ms}) ms")
    place_of = {item.share: place for place, item in enumerate(items)}
    span = WindowRange(windows.start_ms, windows.end_ms)
    found = packs_of(context, options.places, span, max(context.defaultParallelism, 8))
    shared = found.keyBy(partial(_share, items[0].shares)).filter(_is_one_of(place_of, packs))
    placed = shared.partitionBy(len(items), place_of.__getitem__)
    copying = partial(_copy, options, list(items), notes)
    return placed.mapPartitionsWithIndex(copying).fold(Rebuilt(), Rebuilt.plus)


def copy_holes(history: ChunkStore, log: Log, windows: Windows, packs: Packs) -> Rebuilt:
    """Write the named losses of these windows again."""
    done = Rebuilt()
    for one in history.holes(None, windows.start_ms, windows.end_ms):
        if packs is None or one.hole.pack_id in packs:
            record = hole_record(one.hole)
            log.append_sync(CHUNKS, one.hole.partition, record.value, key=record.key)
            done.holes += 1
            done.bytes += record.size
    return done


def _share(shares: int, pack: PackSpan) -> int:
    return pack.pack_id * shares // ALL_IDS


def _is_one_of(places: dict[int, int], packs: Packs) -> Callable[[tuple[int, PackSpan]], bool]:
    return lambda pair: pair[0] in places and (packs is None or pair[1].pack_id in packs)


def _copy(
    options: BuildOptions,
    items: Sequence[HistoryItem],
    notes: Notes | None,
    place: int,
    packs: Iterable[tuple[int, PackSpan]],
) -> Iterator[Rebuilt]:
    item, done = items[place], Rebuilt()
    with quoted_errors(), options.places.open_history() as history:
        log = worker_log(options.places, options.topic_id)
        sender = chunk_appender(log, options, SystemClock())
        try:
            for partition, row in _rows(history, options, item.windows, (pack for _, pack in packs)):
                key = encode_key(row.key)
                if not is_sound(row):
                    done.refused += 1
                    continue
                sender.send(partition, key, row.value)
                done.history_chunks += 1
                done.bytes += len(key) + len(row.value)
            sender.finish()
        except BaseException:
            sender.abandon()
            raise
        if notes is not None:
            note(notes, log, item, done)
        yield done


def _rows(
    history: ChunkStore, options: BuildOptions, windows: Windows, packs: Iterable[PackSpan]
) -> Iterator[tuple[int, ChunkRow]]:
    """Rows with their partitions. Packs that have series in the same months are read together."""
    span = WindowRange(windows.start_ms, windows.end_ms)

    def place(pack: PackSpan) -> tuple[int, int, int]:
        of_pack = pack.windows(span, options.times.window_ms)
        return pack.partition, of_pack.start_ms, of_pack.end_ms

    for (partition, start_ms, end_ms), group in groupby(sorted(packs, key=place), key=place):
        for piece in history.read([pack.pack_id for pack in group], WindowRange(start_ms, end_ms)):
            for row in piece:
                yield partition, row
