"""A history in dicts, for readers, and the contents that chunk stage and loader would write for some records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from support.data.heads import Record, canonical_of, id_of
from support.oracles.fragment_twin import bits as bits_of
from support.oracles.fragment_twin import fragment_of
from tsdb.codec.chunk.chunk import encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.interface import ChunkRow, HistoryHole, Loaded, SeriesIndexRows, WantedSeries, WindowRange
from tsdb.model.errors import TsdbError
from tsdb.model.labels import metric_name
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import TimeSet
from tsdb.model.window import floor_to, index_epoch

PLACEMENT = PlacementRule()


class FakeHistory:
    """The reading half of a ChunkStore. `calls` names the reads in their order; `fail` is raised by the next ones."""

    def __init__(self) -> None:
        self.rows: dict[ChunkKey, bytes] = {}
        self.loaded_by: dict[int, Loaded] = {}
        self.hole_list: list[HistoryHole] = []
        self.announced: dict[tuple[int, bytes], dict[int, tuple[int, int, bytes]]] = {}
        self.calls: list[str] = []
        self.fail: list[TsdbError] = []

    # Filled by tests.

    def load(self, topic_id: str, partition: int, position: int, emitted_through_ms: int) -> None:
        """Set the loaded marks."""
        self.loaded_by[partition] = Loaded(topic_id, partition, position, emitted_through_ms)

    def announce(self, canonical: bytes, series_id: int, epoch: int, partition: int) -> None:
        """Add one series in one epoch."""
        rows = self.announced.setdefault((epoch, metric_name(canonical)), {})
        rows[series_id] = PLACEMENT.place(canonical).pack_id, partition, canonical

    def add_hole(self, partition: int, start_ms: int, end_ms: int, *, pack_id: int = 0, accepted: bool = False) -> None:
        """Add one hole, accepted or not."""
        hole = HoleRecord(partition, pack_id, start_ms, end_ms, "corrupt_record", 7)
        self.hole_list.append(HistoryHole(hole, accepted))

    # Methods of ChunkStore.

    def read(
        self, pack_ids: Sequence[int], windows: WindowRange, wanted: WantedSeries | None = None
    ) -> Iterator[list[ChunkRow]]:
        self._called("read")
        keys = sorted(self.rows, key=lambda key: (key.window_start_ms, key.order, key.kind, key.part))
        for pack_id in pack_ids:
            mine = [
                ChunkRow(key, self.rows[key])
                for key in keys
                if key.pack_id == pack_id and windows.start_ms <= key.window_start_ms < windows.end_ms
            ]
            for row in mine:
                yield [row]

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        self._called("loaded")
        return {number: loaded for number, loaded in self.loaded_by.items() if loaded.topic_id == topic_id}

    def holes(self, partitions: Collection[int] | None, start_ms: int, end_ms: int) -> list[HistoryHole]:
        self._called("holes")
        return [
            one
            for one in self.hole_list
            if (partitions is None or one.hole.partition in partitions)
            and one.hole.start_ms < end_ms
            and one.hole.end_ms > start_ms
        ]

    def metric_names(self, epoch: int) -> list[bytes]:
        self._called("metric_names")
        return sorted(name for of_epoch, name in self.announced if of_epoch == epoch)

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        self._called("series")
        rows = sorted(self.announced.get((epoch, name), {}).items())
        return SeriesIndexRows(
            np.array([series_id for series_id, _ in rows], np.uint64),
            np.array([pack_id for _, (pack_id, _, _) in rows], np.uint64),
            np.array([partition for _, (_, partition, _) in rows], np.int32),
            [canonical for _, (_, _, canonical) in rows],
        )

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.fail:
            raise self.fail.pop(0)


class StagedLog:
    """The records of one partition, and a plain twin of the chunk stage over them."""

    def __init__(self, records: Sequence[Record], time_set: TimeSet, partition: int = 0) -> None:
        self.records = records
        self._time_set = time_set
        self._partition = partition

    def closed_ends(self) -> list[int]:
        """Ends of the windows that hold a sample and have closed, ascending."""
        ends = {self._window(ts) + self._time_set.window_ms for record in self.records for _, ts, _ in record.samples}
        return sorted(end for end in ends if self.decision_offset(end) is not None)

    def decision_offset(self, window_end_ms: int) -> int | None:
        """First offset at or after which the window is closed; None while it is open."""
        watermark = -(1 << 62)
        for record in self.records:
            watermark = max(watermark, record.broker_ms)
            if watermark >= window_end_ms + self._time_set.grace_ms:
                return record.offset
        return None

    def put_into(self, history: FakeHistory, position: int, emitted_through_ms: int) -> None:
        """Rows of all windows that end by this time, and of late samples below position, with the announcements of all
        their series.
        """
        chunks: dict[tuple[int, int, Kind, int], dict[tuple[int, int], tuple[int, int]]] = {}
        for record in self.records:
            for number, ts, value in record.samples:
                if ts > record.broker_ms + self._time_set.ahead_ms:
                    continue
                end_ms = self._window(ts) + self._time_set.window_ms
                decision = self.decision_offset(end_ms)
                if decision is None:
                    continue
                pack_id = PLACEMENT.place(canonical_of(number)).pack_id
                if record.offset < decision:
                    if end_ms > emitted_through_ms:
                        continue
                    key, order = (pack_id, self._window(ts), Kind.BASE, decision), decision - 1
                elif record.offset < position:
                    key, order = (pack_id, self._window(ts), Kind.LATE, record.offset), record.offset
                else:
                    continue
                chunks.setdefault(key, {})[id_of(number), ts] = order, bits_of(value)
                history.announce(canonical_of(number), id_of(number), index_epoch(id_of(number), ts), self._partition)
        for (pack_id, window_ms, kind, of), samples in chunks.items():
            parts = encode_chunk(fragment_of(samples, pack_id, window_ms), window_ms=self._time_set.window_ms)
            for part, data in enumerate(parts):
                history.rows[ChunkKey(pack_id, window_ms, kind, of, part)] = data

    def _window(self, ts_ms: int) -> int:
        return floor_to(ts_ms, self._time_set.window_ms)
