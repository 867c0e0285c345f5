"""A log with late and repeated samples, and a history that a chunk stage and a loader have brought some way."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from spark_backfill.places import Places
from support.data.heads import announcement, id_of
from support.data.late_writer import announce_all, series_of, some_record
from support.data.log_records import decode_list
from support.oracles.chunk_twin import pack_of
from support.oracles.fragment_twin import fragment_of
from support.servers.histories import META, HistoryFactory, write_rows, written
from support.servers.logs import LogFactory
from support.spark.sample_streams import make_log
from support.spark.spark import places
from tsdb.codec.chunk.chunk import encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.records.series_record import decode_announcement
from tsdb.history.interface import ChunkRow, ChunkStore, Loaded
from tsdb.log.interface import METRICS, Log
from tsdb.model.window import floor_to, index_epoch

BEGIN_MS = 1_700_006_400_000  # The start of a window.
EVERY_MS = 240_000
WINDOW_MS = META.time_set.window_ms
PACKS = {id_of(number): pack_of(number) for number in range(META.partitions * len(series_of(0)))}


@dataclass
class LoadedHistory:
    """A context manager. versions: by (series id, ts_ms) the (order, bits, partition, offset) of each, as written."""

    logs: LogFactory
    histories: HistoryFactory
    seed: int
    versions: dict[tuple[int, int], list[tuple[tuple[int, int], int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    end_ms: int = BEGIN_MS

    def __enter__(self) -> Self:
        self.log: Log = make_log(self.logs, timestamp_type="CreateTime")
        self.histories.create()
        self.history: ChunkStore = self.histories.open()
        self._rng = random.Random(self.seed)
        for partition in range(META.partitions):
            announce_all(self.log, partition, BEGIN_MS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to do: the factories close what they opened."""

    @property
    def places(self) -> Places:
        """The log and the history, as a data source opens them."""
        return places(self.logs, self.histories)

    @property
    def newest(self) -> list[tuple[int, int, int]]:
        """(series id, ts_ms, bits) of each sample, with the version that counts."""
        return sorted((*key, max(found)[1]) for key, found in self.versions.items())

    def write(self, records: int) -> None:
        """One record a partition and EVERY_MS, some with late or repeated samples."""
        for _ in range(records):
            self.end_ms += EVERY_MS
            for partition in range(META.partitions):
                self.append(partition, some_record(self._rng, partition, self.end_ms, WINDOW_MS))

    def pause(self, hours: int) -> None:
        """Let time pass. The series are announced again, as before each next sample of a quiet series."""
        self.end_ms += hours * 3_600_000
        for partition in range(META.partitions):
            announce_all(self.log, partition, self.end_ms)

    def append(self, partition: int, record: bytes) -> None:
        """One record at the present time."""
        at = self.log.append_sync(METRICS, partition, record, timestamp_ms=self.end_ms)
        decoded = decode_list([record])
        bits = decoded.value.view("u8").tolist()
        for index, (series_id, ts_ms) in enumerate(
            zip(decoded.series_id.tolist(), decoded.ts_ms.tolist(), strict=True)
        ):
            self.versions[series_id, ts_ms].append(((at.offset, index), bits[index], partition))

    def load(self, through_ms: int, position: int, *, more: float = 0.0, apart: bool = False) -> None:
        """Bring to history what is below the position and before the time, and a share of the rest too.

        apart: partition 1 is some records behind, partition 2 a window.
        """
        places = dict.fromkeys(range(META.partitions), (through_ms, position))
        if apart:
            places |= {1: (through_ms, max(position - 7, 0)), 2: (max(through_ms - WINDOW_MS, BEGIN_MS), position)}
        fragments: dict[tuple[int, int, int], dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
        for (series_id, ts_ms), found in self.versions.items():
            of_record = {order[0]: (order[0], bits, partition) for order, bits, partition in sorted(found)}
            for offset, bits, partition in of_record.values():
                loaded = ts_ms < places[partition][0] and offset < places[partition][1]
                if loaded or self._rng.random() < more:
                    pack = self.pack_of(series_id)
                    fragments[partition, pack, floor_to(ts_ms, WINDOW_MS)][series_id, ts_ms] = offset, bits
        self.rows = [row for place, samples in fragments.items() for row in self._rows_of(place, samples)]
        write_rows(self.history, self.rows)
        for partition in range(META.partitions):
            for number in series_of(partition):
                key, value = announcement(number, index_epoch(id_of(number), BEGIN_MS))
                announced = decode_announcement(key, value)
                written(lambda done, of=announced, at=partition: self.history.write_series(of, at, done))  # type: ignore[misc]
        topic_id = self.log.topic_id(METRICS)
        for partition, (emitted_ms, at) in places.items():
            mark = Loaded(topic_id, partition, at, emitted_ms)
            written(lambda done, of=mark: self.history.write_loaded(of, done))  # type: ignore[misc]

    @staticmethod
    def pack_of(series_id: int) -> int:
        """The pack of a series."""
        return PACKS[series_id]

    @staticmethod
    def _rows_of(place: tuple[int, int, int], samples: dict[tuple[int, int], tuple[int, int]]) -> list[ChunkRow]:
        _, pack, window = place
        fragment = fragment_of(samples, pack, window)
        values = encode_chunk(fragment, window_ms=WINDOW_MS, part_bytes_max=META.part_bytes_max)
        return [ChunkRow(ChunkKey(pack, window, Kind.LATE, 1, part), value) for part, value in enumerate(values)]
