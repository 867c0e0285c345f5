"""A late storm: `chunks` and `series` as a chunk stage writes them with many late samples, and the expected reads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from support.oracles.fragment_twin import Samples, bits, fragment_of, merged_twin, samples_of
from support.servers.histories import WINDOW_MS
from tsdb.codec.chunk.chunk import decode_chunk, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind, ProgressKey, encode_key
from tsdb.codec.chunk.marker import ProgressMarker, encode_progress_marker
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.interface import ChunkStore, WindowRange
from tsdb.history.merge import merge
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Log
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.window import index_epoch

FIRST_WINDOW = 118_000
EVERY_MS = 60_000
PACK_SERIES = 3
EVERYTHING = 1 << 50  # Above every other offset and every other time.
# All windows of any storm. History costs a request a month, even for months without rows.
EVER = WindowRange(FIRST_WINDOW * WINDOW_MS, (FIRST_WINDOW + 100) * WINDOW_MS)

PackWindow = tuple[int, int]  # (pack_id, window start)


@dataclass
class LateStorm:
    """Packs of three series in `windows` windows: a base of 60 samples, and late fragments of a few of them.

    wanted: by (pack, window) the samples that any reader must find.
    """

    packs: int = 12
    windows: int = 3
    late: int = 10
    seed: int = 1
    name: str = "storm"
    partitions: int = 3
    parts: dict[PackWindow, list[Samples]] = field(default_factory=dict)
    partition: dict[int, int] = field(default_factory=dict)

    @property
    def wanted(self) -> dict[PackWindow, dict[tuple[int, int], tuple[int, int]]]:
        return {place: merged_twin(parts) for place, parts in self.parts.items()}

    def write(self, log: Log) -> None:
        """Append all records, series first."""
        for number in range(self.packs):
            self._write_pack(log, number)
        log.flush(60.0)
        ends = log.watermarks(SERIES, range(self.partitions))
        for partition, marks in ends.items():
            # A loader that comes later must not begin from zero.
            marker = ProgressMarker(log.topic_id(METRICS), EVERYTHING, EVERYTHING, marks.high)
            log.append_sync(CHUNKS, partition, encode_progress_marker(marker), key=encode_key(ProgressKey()))

    def write_late(self, log: Log, order: int, packs: Iterable[int] | None = None) -> None:
        """One more late fragment of this order in every window of these packs."""
        source = random.Random(order)
        for place in [place for place in self.parts if packs is None or place[0] in packs]:
            series = sorted({series for series, _ in self.parts[place][0]})
            self._send(log, place, Kind.LATE, order, _late(series, place[1], order, source))
        log.flush(60.0)

    def _write_pack(self, log: Log, number: int) -> None:
        labels = [
            canonical_labels({"__name__": self.name, "job": "j", "instance": str(number), "cpu": str(cpu)})
            for cpu in range(PACK_SERIES)
        ]
        place = PlacementRule().place(labels[0])
        self.partition[place.pack_id] = partition_of(place.placement, self.partitions)
        series = sorted(map(series_id, labels))
        source = random.Random(f"{self.seed} {number}")
        for window in range(self.windows):
            start_ms = (FIRST_WINDOW + window) * WINDOW_MS
            announce(log, self.partition[place.pack_id], labels, place.pack_id, start_ms)
            of = {(one, start_ms + EVERY_MS * at): (99, bits(source.random())) for one in series for at in range(60)}
            self._send(log, (place.pack_id, start_ms), Kind.BASE, 100, of)
            for late in range(self.late):
                order = 200 + late
                self._send(log, (place.pack_id, start_ms), Kind.LATE, order, _late(series, start_ms, order, source))

    def _send(self, log: Log, place: PackWindow, kind: Kind, order: int, of: Samples) -> None:
        pack_id, start_ms = place
        self.parts.setdefault(place, []).append(of)
        for part, value in enumerate(encode_chunk(fragment_of(of, pack_id, start_ms), window_ms=WINDOW_MS)):
            key = encode_key(ChunkKey(pack_id, start_ms, kind, order, part))
            log.append(CHUNKS, self.partition[pack_id], value, key=key, on_done=acked)


def announce(log: Log, partition: int, labels: Iterable[bytes], pack_id: int, start_ms: int) -> None:
    """Append announcements of series in the index epochs of a window."""
    for canonical in labels:
        number = series_id(canonical)
        for epoch in {index_epoch(number, start_ms), index_epoch(number, start_ms + WINDOW_MS - 1)}:
            key, value = encode_announcement(number, epoch, pack_id, canonical)
            log.append(SERIES, partition, value, key=key, on_done=acked)


def _late(series: list[int], start_ms: int, order: int, source: random.Random) -> Samples:
    """A few samples: some replace existing ones, some are new."""
    times = source.sample(range(75), 4)
    return {
        (one, start_ms + EVERY_MS * at): (order, bits(float(source.randrange(9)))) for one in series for at in times
    }


def acked(answer: object) -> None:
    """Callback of appends that must not fail."""
    assert not isinstance(answer, Exception), answer


def read_all(store: ChunkStore, packs: Collection[int]) -> dict[PackWindow, dict[tuple[int, int], tuple[int, int]]]:
    """The merged samples of these packs, as readers get them."""
    found: dict[PackWindow, list[bytes]] = {}
    for piece in store.read(list(packs), EVER):
        for row in piece:
            found.setdefault((row.key.pack_id, row.key.window_start_ms), []).append(row.value)
    return {place: samples_of(merge(list(map(decode_chunk, values)))) for place, values in found.items()}


def fragments_left(store: ChunkStore, packs: Iterable[int]) -> dict[PackWindow, set[tuple[Kind, int]]]:
    """The fragments with a row, by (pack, window)."""
    found: dict[PackWindow, set[tuple[Kind, int]]] = {}
    for pack_id in packs:
        for key in store.keys(pack_id, EVER):
            found.setdefault((pack_id, key.window_start_ms), set()).add((key.kind, key.order))
    return found


class Again:
    """A thread that repeats an action while a block runs; its exception is raised at the end of the block."""

    def __init__(self, step: Callable[[], None], *, every_s: float = 0.01) -> None:
        self._step = step
        self._every_s = every_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="again")
        self._error: BaseException | None = None
        self.times = 0

    def __enter__(self) -> Again:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        self._ending.set()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._ending.wait(self._every_s):
                self._step()
                self.times += 1
        except BaseException as error:
            self._error = error


def assert_reads(store: ChunkStore, wanted: Mapping[PackWindow, object]) -> None:
    """Assert that readers get exactly the wanted samples."""
    found = read_all(store, np.unique(np.array([pack for pack, _ in wanted], np.uint64)).tolist())
    assert found.keys() == wanted.keys()
    wrong = [place for place in wanted if found[place] != wanted[place]]
    assert not wrong, f"{len(wrong)} of {len(wanted)} (pack, window) read otherwise, first {wrong[0]}"
