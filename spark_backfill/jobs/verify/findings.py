"""Findings: finds the differences of one key, from its digests in each place and from the progress of each place.
Pure.

KeyDigests has the digests of the log, `chunks` and history under one key, merged from partial results. It is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import xxhash

from tsdb.codec.chunk.key import ChunkKey, Kind, WindowKey

NOTHING = b""  # Digest of a null record.

DERIVED = (Kind.BASE, Kind.LATE)  # Kinds that the log gives; imports and folds exist only in `chunks` and history.


@dataclass(frozen=True, slots=True)
class KeyDigests:
    """None in a field: the place does not have the key. partition: partition of the log; history does not know it.

    expected: digest of the record that the log gives. offset, chunk: offset and digest of the last record in `chunks`;
    the digest of a null record is NOTHING. history: digest of the row in history. covered: a folded chunk in `chunks`
    covers this key.

    """

    partition: int | None = None
    expected: bytes | None = None
    offset: int | None = None
    chunk: bytes | None = None
    history: bytes | None = None
    covered: bool = False

    def plus(self, other: KeyDigests) -> KeyDigests:
        """Merge two partial results. Of two records in `chunks` the later one counts."""
        later = self if other.offset is None or (self.offset is not None and self.offset >= other.offset) else other
        return KeyDigests(
            self.partition if other.partition is None else other.partition,
            self.expected if other.expected is None else other.expected,
            later.offset,
            later.chunk,
            self.history if other.history is None else other.history,
            self.covered or other.covered,
        )


def digest(value: bytes) -> bytes:
    """Digest of 16 bytes. Two values with one digest are so unlikely that they are ignored."""
    return xxhash.xxh3_128_digest(value)


class Problem(Enum):
    MISSING = "missing"
    DIFFERING = "differing"
    EXTRA = "extra"


class Location(Enum):
    CHUNKS = "chunks"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Horizon:
    """Progress of one partition. Keys beyond it are not due yet.

    position, emitted_through_ms: progress of the chunk stage. loaded_*: of history; None: history is not compared.
    loader_offset: records of `chunks` below it are in history. first_base_ms: windows before it have no base.
    """

    position: int
    emitted_through_ms: int
    first_base_ms: int
    loaded_position: int | None = None
    loaded_through_ms: int = 0
    loader_offset: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference. partition: None when only history has the key."""

    place: Location
    problem: Problem
    key: ChunkKey | WindowKey
    partition: int | None


def findings_of(
    key: ChunkKey | WindowKey, seen: KeyDigests, horizons: Mapping[int, Horizon], window_ms: int
) -> Iterator[Finding]:
    """Findings for one key; empty when all places agree or the key is not due yet."""
    if seen.partition is None:
        # Neither the log nor `chunks` has this key, so the row in history has no source.
        if seen.history is not None and isinstance(key, ChunkKey):
            yield Finding(Location.HISTORY, Problem.EXTRA, key, None)
        return
    at = horizons[seen.partition]
    if isinstance(key, WindowKey):
        if at.first_base_ms <= key.window_start_ms:
            yield from _compared(Location.CHUNKS, key, seen, seen.expected, _chunk(seen))
        return
    derived = key.kind in DERIVED
    if derived and not _is_due(key, at.position, at.emitted_through_ms, window_ms):
        return
    want = (seen.expected if derived else _chunk(seen)) if not _is_folded_away(seen) else None
    if derived and (want is not None or not seen.covered):
        yield from _compared(Location.CHUNKS, key, seen, want, _chunk(seen))
    if at.loaded_position is not None and _is_loaded(key, seen, at, window_ms):
        yield from _compared(Location.HISTORY, key, seen, want, seen.history)


def _compared(
    place: Location, key: ChunkKey | WindowKey, seen: KeyDigests, want: bytes | None, got: bytes | None
) -> Iterator[Finding]:
    if want == got:
        return
    problem = Problem.MISSING if got is None else Problem.EXTRA if want is None else Problem.DIFFERING
    yield Finding(place, problem, key, seen.partition)


def _chunk(seen: KeyDigests) -> bytes | None:
    return None if seen.chunk == NOTHING else seen.chunk


def _is_folded_away(seen: KeyDigests) -> bool:
    """Whether a fold covers the key and its record was deleted from `chunks` for that reason."""
    return seen.covered and _chunk(seen) is None


def _is_due(key: ChunkKey, position: int, emitted_through_ms: int, window_ms: int) -> bool:
    if key.kind is Kind.LATE:
        return key.order < position
    return key.window_start_ms + window_ms <= emitted_through_ms


def _is_loaded(key: ChunkKey, seen: KeyDigests, at: Horizon, window_ms: int) -> bool:
    # A null record of merge-late comes long after the window is loaded.
    if seen.offset is not None and seen.offset >= at.loader_offset:
        return False
    if key.kind in DERIVED:
        assert at.loaded_position is not None, "history is compared"
        return _is_due(key, at.loaded_position, at.loaded_through_ms, window_ms)
    return seen.offset is not None
