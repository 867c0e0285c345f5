"""`chunks` and `series` as a chunk stage writes them, and the contents that history must have afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from support.data.heads import details_of
from support.oracles.fragment_twin import bits, fragment_of
from tsdb.codec.chunk.chunk import encode_chunk
from tsdb.codec.chunk.key import ChunkKey, HoleKey, Kind, ProgressKey, WindowKey, encode_key
from tsdb.codec.chunk.marker import (
    HoleRecord,
    ProgressMarker,
    WindowMarker,
    encode_hole,
    encode_progress_marker,
    encode_window_marker,
)
from tsdb.codec.records.series_record import Announcement, encode_announcement
from tsdb.history.interface import Loaded
from tsdb.log.interface import CHUNKS, SERIES, Log
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.time_set import PRODUCTION

WINDOW_MS = PRODUCTION.window_ms


@dataclass(frozen=True)
class Entry:
    """One record to append to a topic."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None


@dataclass
class Expected:
    """The contents of history when everything is loaded. `later`: these and the contents staged afterwards."""

    rows: dict[ChunkKey, bytes] = field(default_factory=dict)
    series: dict[tuple[int, int], tuple[Announcement, int]] = field(default_factory=dict)
    loaded: dict[int, Loaded] = field(default_factory=dict)
    holes: list[HoleRecord] = field(default_factory=list)

    def later(self, more: Expected) -> Expected:
        return Expected(
            self.rows | more.rows, self.series | more.series, self.loaded | more.loaded, self.holes + more.holes
        )


def chunk_value(pack_id: int, window_start_ms: int, seed: int, samples: int = 8) -> bytes:
    """A chunk with one part. Where the seed is even its samples have histograms and start timestamps."""
    source = random.Random(seed)
    of = {
        (series, window_start_ms + 1_000 * t): (7, bits(source.random())) for series in (1, 2) for t in range(samples)
    }
    fragment = fragment_of(of, pack_id, window_start_ms)
    if not seed % 2:
        fragment = replace(fragment, details=details_of([seed + at for at in range(fragment.samples)], fragment.value))
    (value,) = encode_chunk(fragment, window_ms=WINDOW_MS)
    return value


def chunk_entry(partition: int, key: ChunkKey, value: bytes | None) -> Entry:
    """A chunk's record, or with None its null record."""
    return Entry(CHUNKS, partition, encode_key(key), value)


def marker_entry(partition: int, marker: ProgressMarker) -> Entry:
    """A progress marker's record."""
    return Entry(CHUNKS, partition, encode_key(ProgressKey()), encode_progress_marker(marker))


def series_entry(partition: int, number: int, epoch: int = 0) -> tuple[Entry, Announcement]:
    """The record of one announcement."""
    labels = canonical_labels({"__name__": f"m{number % 3}", "instance": str(number)})
    announcement = Announcement(series_id(labels), epoch, number % 5 + 1, labels)
    key, value = encode_announcement(announcement.series_id, epoch, announcement.pack_id, labels)
    return Entry(SERIES, partition, key, value), announcement


def staged(
    topic_id: str, partitions: int, windows: int, packs: int, seed: int, *, first_window: int = 0
) -> tuple[list[Entry], Expected]:
    """Windows of chunks, with late chunks, deletions, repeats, holes and markers, in the order of the appends.
    first_window: number of windows staged before. Each partition's progress markers state an offset of `series` that it
    has passed by then.
    """
    source, expected = random.Random(seed), Expected()
    entries: list[Entry] = []
    for partition in range(partitions):
        entries += _of_partition(
            topic_id, partition, range(first_window, first_window + windows), packs, source, expected
        )
    return entries, expected


def append_entries(log: Log, entries: Iterable[Entry]) -> None:
    """Append all records in order."""
    failed: list[object] = []
    for entry in entries:
        log.append(
            entry.topic,
            entry.partition,
            entry.value,
            key=entry.key,
            on_done=lambda answer: failed.append(answer) if isinstance(answer, Exception) else None,
        )
    log.flush(30.0)
    assert not failed, failed[0]


def _of_partition(
    topic_id: str, partition: int, windows: range, packs: int, source: random.Random, expected: Expected
) -> Iterator[Entry]:
    position, announced = 100 * windows.start, 2 * windows.start
    for window in windows:
        start_ms = window * WINDOW_MS
        for _ in range(2):
            entry, announcement = series_entry(partition, partition * 10_000 + announced, window // 3)
            announced += 1
            expected.series[announcement.series_id, announcement.epoch] = announcement, partition
            yield from [entry] * source.choice([1, 1, 3])
        for pack in range(packs):
            key = ChunkKey(partition * 1_000 + pack + 1, start_ms, Kind.BASE, position + 5, 0)
            yield from _chunk(partition, key, source, expected)
            if source.random() < 0.2:
                late = ChunkKey(key.pack_id, start_ms, Kind.LATE, position + 6 + pack, 0)
                yield from _chunk(partition, late, source, expected)
                if source.random() < 0.5:
                    expected.rows.pop(late, None)
                    yield chunk_entry(partition, late, None)
        if window % 4 == 3:
            hole = HoleRecord(partition, 0, start_ms, start_ms + 1, "corrupt_record", position)
            expected.holes.append(hole)
            hole_key = HoleKey(0, hole.start_ms, hole.end_ms, hole.record_offset)
            yield Entry(CHUNKS, partition, encode_key(hole_key), encode_hole(hole))
        position += 100
        marker = encode_window_marker(WindowMarker(position, packs, packs, packs * 16))
        yield Entry(CHUNKS, partition, encode_key(WindowKey(start_ms)), marker)
        progress = ProgressMarker(topic_id, position, start_ms + WINDOW_MS, announced)
        expected.loaded[partition] = Loaded(topic_id, partition, position, start_ms + WINDOW_MS)
        yield marker_entry(partition, progress)


def _chunk(partition: int, key: ChunkKey, source: random.Random, expected: Expected) -> Iterator[Entry]:
    value = chunk_value(key.pack_id, key.window_start_ms, source.randrange(1 << 30))
    expected.rows[key] = value
    yield from [chunk_entry(partition, key, value)] * source.choice([1, 1, 1, 2])
