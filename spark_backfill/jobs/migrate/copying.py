"""Copying: tasks read rows of one history and write them to another, a group of rows at a time.

Writes are blind upserts, so a repeated task changes nothing. A row that does not decode is counted and not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import xxhash

from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.noted_run import Notes
from spark_backfill.places import Places
from spark_backfill.worker_log import worker_log
from tsdb.backup.manifest import BackupPlan
from tsdb.backup.restore import Begin, write_all
from tsdb.codec.records.series_record import Announcement
from tsdb.history.fold import is_sound
from tsdb.history.interface import ChunkStore, RowSplit, SeriesIndexRows, WindowRange
from tsdb.log.interface import METRICS
from tsdb.model.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVER = WindowRange(-(1 << 62), 1 << 62)
GROUP_ROWS, GROUP_BYTES = 512, 4 << 20  # A group is written at once, and its answers awaited.

Name = tuple[int, bytes]
"""Index epoch and metric name."""


@dataclass(frozen=True, slots=True)
class ChunkItem:
    """The rows of one split."""

    number: int
    split: RowSplit

    @property
    def key(self) -> str:
        """The item's part of the key of its note."""
        return f"chunks/{self.number}"


@dataclass(frozen=True, slots=True)
class SeriesItem:
    """The series of these names. share: number of the item among `shares`."""

    share: int
    shares: int
    names: tuple[Name, ...]

    @property
    def key(self) -> str:
        """The item's part of the key of its note."""
        return f"series/{self.share}/{self.shares}"


CopyItem = ChunkItem | SeriesItem


@dataclass(slots=True)
class Copied:
    """Counts of rows written. bytes: size of the chunks. refused: rows that do not decode."""

    chunks: int = 0
    series: int = 0
    bytes: int = 0
    refused: int = 0

    def plus(self, other: Copied) -> Copied:
        """The sum of both counts."""
        return Copied(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Copied)))


def chunk_items(splits: Sequence[RowSplit]) -> list[ChunkItem]:
    """An item for each split."""
    return [ChunkItem(number, split) for number, split in enumerate(splits)]


def series_items(store: ChunkStore, shares: int) -> list[SeriesItem]:
    """The whole series index. A name is always in the same share; the shares without a name are left out."""
    names: dict[int, list[Name]] = {}
    for epoch in store.epochs():
        for name in store.metric_names(epoch):
            share = xxhash.xxh3_64_intdigest(b"%d/" % epoch + name) % shares
            names.setdefault(share, []).append((epoch, name))
    return [SeriesItem(share, shares, tuple(found)) for share, found in sorted(names.items())]


def copy_items(
    spark: SparkSession,
    source: Places,
    target: Places,
    plan: BackupPlan,
    items: Sequence[CopyItem],
    notes: Notes,
) -> Copied:
    """Copy these items, one in each task; each finished one is noted."""
    if not items:
        return Copied()
    spark.sparkContext.setJobDescription(f"migrate: copy {len(items)} parts")
    tasks = spark.sparkContext.parallelize(items, len(items))
    copying = partial(_copy, source, target, plan.topic_ids[METRICS], notes)
    return tasks.mapPartitions(copying).fold(Copied(), Copied.plus)


def announcements(epoch: int, rows: SeriesIndexRows) -> Iterator[tuple[Announcement, int]]:
    """The rows of the series index, each with its partition."""
    columns = rows.series_id.tolist(), rows.pack_id.tolist(), rows.labels, rows.partition.tolist()
    for series_id, pack_id, canonical, partition in zip(*columns, strict=True):
        yield Announcement(series_id, epoch, pack_id, canonical), partition


def _copy(source: Places, target: Places, topic_id: str, notes: Notes, items: Iterable[CopyItem]) -> Iterator[Copied]:
    clock = SystemClock()
    with quoted_errors(), source.open_history() as store, target.open_history() as to:
        for item in items:
            done = Copied()
            writes = _chunks(store, to, item, done) if isinstance(item, ChunkItem) else _series(store, to, item, done)
            for group in _grouped(writes):
                write_all(group, clock)
            notes.write(worker_log(source, topic_id), item.key, astuple(done))
            yield done


Write = tuple[Begin, int]
"""A write, and its bytes."""


def _chunks(store: ChunkStore, to: ChunkStore, item: ChunkItem, done: Copied) -> Iterator[Write]:
    for piece in store.scan(item.split):
        for row in piece:
            if not is_sound(row):
                done.refused += 1
                continue
            done.chunks += 1
            done.bytes += len(row.value)
            yield partial(to.write, row.key, row.value), len(row.value)


def _series(store: ChunkStore, to: ChunkStore, item: SeriesItem, done: Copied) -> Iterator[Write]:
    for epoch, name in item.names:
        for announcement, partition in announcements(epoch, store.series(epoch, name)):
            done.series += 1
            yield partial(to.write_series, announcement, partition), len(announcement.canonical)


def _grouped(writes: Iterable[Write]) -> Iterator[list[Begin]]:
    group: list[Begin] = []
    size = 0
    for begin, added in writes:
        group.append(begin)
        size += added
        if len(group) >= GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
