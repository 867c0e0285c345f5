"""Chunk writer: write sorted rows of a task as chunks of imports. Only rows and run determine keys and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from spark_backfill.places import Places
from spark_backfill.writing.appender import TaskAppender
from spark_backfill.writing.fragments import Cut, SortedRows, cuts
from tsdb.codec.chunk.chunk import encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind, encode_key
from tsdb.log.interface import CHUNKS
from tsdb.model.errors import InvalidRequest

# The 32 bits of a key's part: the upper ones number the share of a split pack, the lower ones the parts of that share.
RANGE_BITS, NUMBER_BITS = 12, 20
RANGES_MAX, NUMBERS_MAX = 1 << RANGE_BITS, 1 << NUMBER_BITS
SERIES_PER_RANGE = 2_048  # A pack with more series is split into ranges of its series.


def range_bits(series: int, per_range: int = SERIES_PER_RANGE) -> int:
    """Number of upper bits of a series id that give its range in a pack of this many series; 0: the pack is whole."""
    return min((series // per_range).bit_length(), RANGE_BITS) if series > per_range else 0


@dataclass(frozen=True, slots=True)
class Written:
    """Counts of one task, or of all tasks. chunks: number of parts. rows: input rows. duplicates, conflicts: rows that
    are in no chunk (see Cut)."""

    rows: int = 0
    samples: int = 0
    chunks: int = 0
    bytes: int = 0
    duplicates: int = 0
    conflicts: int = 0

    def plus(self, other: Written) -> Written:
        """The sum of both counts."""
        return Written(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Written)))


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """A writer that Spark sends to tasks. orders: by partition, order of keys and samples: offset of the run's tick."""

    places: Places
    orders: Mapping[int, int]
    window_ms: int
    part_bytes_max: int

    def write(self, batches: Iterable[SortedRows]) -> Written:
        """Write all rows; the log has them when it returns. One call must have all rows of a (pack, window, range).

        Raises InvalidRequest (too_many_parts), and as the log does.
        """
        done = Written()
        with self.places.open_log() as log:
            appender = TaskAppender(log, CHUNKS)
            group, number = None, 0
            for cut in cuts(batches):
                key = cut.fragment.pack_id, cut.fragment.window_start_ms, cut.range_number
                number = number if key == group else 0
                group = key
                made = self._send(appender, cut, number)
                number += made
                rows = cut.fragment.samples + cut.duplicates + cut.conflicts
                done = done.plus(Written(rows, cut.fragment.samples, made, 0, cut.duplicates, cut.conflicts))
            appender.finish()
            return replace(done, bytes=appender.sent_bytes)

    def _send(self, appender: TaskAppender, cut: Cut, number: int) -> int:
        """Send a cut as parts, numbered from `number`; return the number of parts."""
        order = self.orders[cut.partition]
        fragment = replace(cut.fragment, order=np.full(cut.fragment.samples, order, np.int64))
        parts = encode_chunk(fragment, window_ms=self.window_ms, part_bytes_max=self.part_bytes_max)
        if number + len(parts) > NUMBERS_MAX:
            raise InvalidRequest(
                f"pack {fragment.pack_id:016x}, window {fragment.window_start_ms} ms: over {NUMBERS_MAX} parts",
                reason="too_many_parts",
            )
        base = (cut.range_number << NUMBER_BITS) + number
        for at, value in enumerate(parts):
            key = ChunkKey(fragment.pack_id, fragment.window_start_ms, Kind.IMPORT, order, base + at)
            appender.send(cut.partition, encode_key(key), value)
        return len(parts)
