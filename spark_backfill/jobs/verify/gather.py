"""Gather: tasks read the keys of a range from each place. Only a digest for each key goes into the shuffle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spark_backfill.building.build import build
from spark_backfill.building.items import Item
from spark_backfill.building.options import BuildOptions
from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.verify.findings import NOTHING, KeyDigests, digest
from spark_backfill.worker_log import batches_between, worker_log
from tsdb.chunks.late_scan import Windows
from tsdb.codec.chunk.chunk import decode_cover
from tsdb.codec.chunk.key import ChunkKey, Kind, WindowKey, decode_key, encode_key
from tsdb.history.interface import RowSplit, WindowRange
from tsdb.log.interface import CHUNKS
from tsdb.model.clock import SystemClock
from tsdb.model.errors import CorruptData, UnknownVersion

KeyId = tuple[int | None, bytes]
"""Key of the shuffle: (partition, key) for window markers, which every partition has; otherwise (None, key)."""

KeySeen = tuple[KeyId, KeyDigests]


@dataclass(frozen=True, slots=True)
class Scope:
    """The keys to verify, in `windows`. packs: only keys of these packs, and no window markers; None: all packs and
    markers."""

    windows: Windows
    packs: frozenset[int] | None = None

    def holds(self, key: bytes) -> bool:
        """Whether to verify a key. Keys of holes, keys of progress and undecodable keys are not verified."""
        try:
            decoded = decode_key(key)
        except CorruptData:
            return False
        match decoded:
            case ChunkKey():
                wanted = self.packs is None or decoded.pack_id in self.packs
            case WindowKey():
                wanted = self.packs is None
            case _:
                return False
        return wanted and self.windows.start_ms <= decoded.window_start_ms < self.windows.end_ms


@dataclass(frozen=True, slots=True)
class TopicStretch:
    """Records [first_offset, end_offset) of a partition of `chunks`."""

    partition: int
    first_offset: int
    end_offset: int


def from_log(options: BuildOptions, scope: Scope, items: Iterable[Item]) -> Iterator[KeySeen]:
    """Keys of the records that the log gives for these items."""
    with quoted_errors():
        log = worker_log(options.places, options.topic_id)
        for item in items:
            for record in build(item, log, options, SystemClock()):
                if scope.holds(record.key):
                    yield _id(item.partition, record.key), KeyDigests(item.partition, expected=digest(record.value))


def from_chunks(options: BuildOptions, scope: Scope, stretches: Iterable[TopicStretch]) -> Iterator[KeySeen]:
    """Keys of all records in `chunks`, of which the last one counts, and the keys that folds cover."""
    with quoted_errors():
        log = worker_log(options.places, options.topic_id)
        for one in stretches:
            for batch in batches_between(log, CHUNKS, one.partition, one.first_offset, one.end_offset):
                for record in map(batch.record, range(len(batch.offsets))):
                    if record.key is None or not scope.holds(record.key):
                        continue
                    value = NOTHING if record.value is None else digest(record.value)
                    yield _id(one.partition, record.key), KeyDigests(one.partition, offset=record.offset, chunk=value)
                    for key in _covered(record.key, record.value):
                        yield (None, key), KeyDigests(one.partition, covered=True)


def keys_in(options: BuildOptions, scope: Scope, stretches: Iterable[TopicStretch]) -> Iterator[bytes]:
    """Keys of the records in these stretches of `chunks`, repeated ones included."""
    with quoted_errors():
        log = worker_log(options.places, options.topic_id)
        for one in stretches:
            for batch in batches_between(log, CHUNKS, one.partition, one.first_offset, one.end_offset):
                for record in map(batch.record, range(len(batch.offsets))):
                    if record.key is not None and scope.holds(record.key):
                        yield record.key


def from_history(options: BuildOptions, scope: Scope, ranges: Iterable[RowSplit]) -> Iterator[KeySeen]:
    """Keys of all rows in history in the scope's windows; others are not fetched."""
    windows = WindowRange(scope.windows.start_ms, scope.windows.end_ms)
    with quoted_errors(), options.places.open_history() as history:
        for tokens in ranges:
            for rows in history.scan(tokens, windows):
                for row in rows:
                    key = encode_key(row.key)
                    if scope.holds(key):
                        yield (None, key), KeyDigests(history=digest(row.value))


def _id(partition: int, key: bytes) -> KeyId:
    return (partition if isinstance(decode_key(key), WindowKey) else None), key


def _covered(key: bytes, value: bytes | None) -> Iterator[bytes]:
    decoded = decode_key(key)
    if value is None or not isinstance(decoded, ChunkKey) or decoded.kind is not Kind.FOLDED or decoded.part:
        return
    try:
        cover = decode_cover(value)
    except (CorruptData, UnknownVersion):
        return  # An undecodable fold covers nothing; the keys it should cover are reported as missing.
    if cover is not None:
        yield from map(encode_key, cover.keys)
