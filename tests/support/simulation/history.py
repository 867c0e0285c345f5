"""A history in memory whose statements are answered when the driver says so, in any order, or fail.

Reads call `before_read` first: a component may move there, in the middle of somebody's read.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import Self

import numpy as np

from tsdb.codec.chunk.key import ChunkKey
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.series_record import Announcement
from tsdb.history.claims import log_ids, standing, withdrawn_id
from tsdb.history.interface import (
    ChunkRow,
    HistoryHole,
    Loaded,
    OnDone,
    RowSplit,
    SeriesIndexRows,
    SeriesPiece,
    WantedSeries,
    WindowRange,
)
from tsdb.history.rows import KEY_MAX, KEY_MIN
from tsdb.model.errors import Unavailable
from tsdb.model.labels import metric_name


@dataclass
class _Statement:
    kind: str
    take_effect: Callable[[], None]
    on_done: OnDone


class SimulatedHistory:
    """tsdb.history.interface.ChunkStore. series_share: probability that a round answers a waiting statement on series.

    failing: share of statements that fail, with or without effect. on_loaded: called before `loaded` is raised.
    """

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.failing = 0.0
        self.series_share = 1.0
        self.at_once = False  # Whether statements are answered as they come.
        self.before_read: Callable[[str], None] = lambda kind: None
        self.on_loaded: Callable[[Loaded], None] = lambda loaded: None
        self.reads = 0
        self._waiting: list[_Statement] = []
        self.empty()

    def empty(self) -> None:
        """An operator drops the history; statements in flight are answered without effect."""
        self.rows: defaultdict[int, dict[ChunkKey, bytes]] = defaultdict(dict)
        self.announced: defaultdict[tuple[int, bytes], dict[int, tuple[int, int, bytes]]] = defaultdict(dict)
        self.loaded_rows: dict[tuple[str, int], Loaded] = {}
        self.hole_rows: dict[tuple[int, int, int, int, int], HistoryHole] = {}
        for statement in self._waiting:
            statement.take_effect = lambda: None

    @property
    def waiting(self) -> int:
        """Statements without an answer."""
        return len(self._waiting)

    def answer(self, count: int) -> None:
        """Answer up to `count` statements, in random order."""
        for _ in range(min(count, len(self._waiting))):
            statement = self._waiting[self.random.randrange(len(self._waiting))]
            if statement.kind == "series" and self.random.random() > self.series_share:
                continue
            self._waiting.remove(statement)
            self._answer(statement)

    def _answer(self, statement: _Statement) -> None:
        fails = self.random.random() < self.failing
        if not fails or self.random.random() < 0.5:
            statement.take_effect()
        statement.on_done(Unavailable("history does not answer", reason="timeout") if fails else None)

    # Methods of ChunkSink.

    def write(self, key: ChunkKey, value: bytes, on_done: OnDone) -> None:
        self._begin("chunk", lambda: self.rows[key.pack_id].__setitem__(key, value), on_done)

    def delete_covered(self, keys: Sequence[ChunkKey], on_done: OnDone) -> None:
        def delete() -> None:
            for key in keys:
                self.rows[key.pack_id].pop(key, None)

        self._begin("delete", delete, on_done)

    def write_loaded(self, loaded: Loaded, on_done: OnDone) -> None:
        def raise_loaded() -> None:
            place = loaded.topic_id, loaded.partition
            held = self.loaded_rows.get(place)
            if held is None or _rank(held) < _rank(loaded):
                self.on_loaded(loaded)
                self.loaded_rows[place] = loaded

        self._begin("loaded", raise_loaded, on_done)

    def write_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        self._begin("hole", lambda: self._put_hole(hole), on_done)

    def delete_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        self._begin("hole_delete", lambda: self._drop_hole(hole), on_done)

    def write_series(self, announcement: Announcement, partition: int, on_done: OnDone) -> None:
        def put() -> None:
            labels = announcement.canonical
            rows = self.announced[announcement.epoch, metric_name(labels)]
            rows[announcement.series_id] = announcement.pack_id, partition, labels

        self._begin("series", put, on_done)

    def forget(self) -> None:
        """No effect: the simulated history caches nothing."""

    def close(self) -> None:
        """Nothing to do: a simulated history has no resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The other methods of ChunkStore.

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        self._read("loaded")
        ids = topic_id, withdrawn_id(topic_id)
        return standing(topic_id, [loaded for (topic, _), loaded in self.loaded_rows.items() if topic in ids])

    def loaded_topics(self) -> list[str]:
        self._read("loaded")
        return log_ids({topic for topic, _ in self.loaded_rows})

    def read(
        self, pack_ids: Sequence[int], windows: WindowRange, wanted: WantedSeries | None = None
    ) -> Iterator[list[ChunkRow]]:
        for pack_id in pack_ids:
            self._read("read")
            keys = [key for key in self.rows[pack_id] if windows.start_ms <= key.window_start_ms < windows.end_ms]
            keys.sort(key=lambda key: (key.window_start_ms, key.order, key.kind, key.part))
            for _, some in groupby(keys, key=lambda key: key.window_start_ms):
                # A read does not see a snapshot. It misses rows written after its begin and rows deleted before it
                # reaches them.
                rows = [ChunkRow(key, self.rows[pack_id][key]) for key in some if key in self.rows[pack_id]]
                if rows:
                    yield rows
                self._read("rows")

    def keys(self, pack_id: int, windows: WindowRange) -> list[ChunkKey]:
        return [row.key for rows in self.read([pack_id], windows) for row in rows]

    def holes(self, partitions: Collection[int] | None, start_ms: int, end_ms: int) -> list[HistoryHole]:
        self._read("holes")
        return [
            one
            for one in self.hole_rows.values()
            if (partitions is None or one.hole.partition in partitions)
            and one.hole.start_ms < end_ms
            and one.hole.end_ms > start_ms
        ]

    def accept_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        self.hole_rows[_place(hole)] = HistoryHole(hole, True)
        on_done(None)

    def epochs(self) -> list[int]:
        return sorted({epoch for epoch, _ in self.announced})

    def metric_names(self, epoch: int) -> list[bytes]:
        self._read("metric_names")
        return sorted(name for of_epoch, name in self.announced if of_epoch == epoch)

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        self._read("series")
        rows = sorted(self.announced.get((epoch, name), {}).items())
        return SeriesIndexRows(
            np.array([series_id for series_id, _ in rows], np.uint64),
            np.array([pack_id for _, (pack_id, _, _) in rows], np.uint64),
            np.array([partition for _, (_, partition, _) in rows], np.int32),
            [labels for _, (_, _, labels) in rows],
        )

    def row_splits(self, count: int) -> list[RowSplit]:
        return [RowSplit(KEY_MIN, 0), RowSplit(0, KEY_MAX)]

    def scan(self, split: RowSplit, windows: WindowRange | None = None) -> Iterator[list[ChunkRow]]:
        for pack_id in sorted(self.rows):
            if split.after < _token(pack_id) <= split.through:
                self._read("scan")
                rows = [
                    ChunkRow(key, value)
                    for key, value in self.rows[pack_id].items()
                    if windows is None or windows.start_ms <= key.window_start_ms < windows.end_ms
                ]
                if rows:
                    yield rows

    def scan_series(self) -> Iterator[SeriesPiece]:
        for (epoch, _), rows in sorted(self.announced.items()):
            yield [
                (Announcement(series_id, epoch, pack_id, labels), partition)
                for series_id, (pack_id, partition, labels) in sorted(rows.items())
            ]

    def chunk_bytes(self) -> int:
        return 0

    def _begin(self, kind: str, take_effect: Callable[[], None], on_done: OnDone) -> None:
        if self.at_once:
            take_effect()
            on_done(None)
        else:
            self._waiting.append(_Statement(kind, take_effect, on_done))

    def _put_hole(self, hole: HoleRecord) -> None:
        self.hole_rows.setdefault(_place(hole), HistoryHole(hole, False))

    def _drop_hole(self, hole: HoleRecord) -> None:
        self.hole_rows.pop(_place(hole), None)

    def _read(self, kind: str) -> None:
        self.reads += 1
        self.before_read(kind)


def _token(pack_id: int) -> int:
    return pack_id - (1 << 63)


def _rank(loaded: Loaded) -> tuple[int, int]:
    return loaded.position, loaded.emitted_through_ms


def _place(hole: HoleRecord) -> tuple[int, int, int, int, int]:
    return hole.partition, hole.pack_id, hole.start_ms, hole.end_ms, hole.record_offset
