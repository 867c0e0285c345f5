"""Records for the `chunks` topic: encodes fragments as the parts of chunks, each with its key. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tsdb.chain import Chain
from tsdb.chunks.late_minute import LateMinute
from tsdb.codec.chunk.chunk import Fragment, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, HoleKey, Kind, WindowKey, encode_key
from tsdb.codec.chunk.marker import HoleRecord, WindowMarker, encode_hole, encode_window_marker


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """Key and value of one record of `chunks`. Its partition has the number of the log partition that it describes.

    due_ms: broker time from which the record could be made, ms since epoch; None: not measured. samples: number of
    samples of the whole chunk, in its first part; 0 in other parts and in markers.
    """

    key: bytes
    value: bytes
    due_ms: int | None = field(default=None, compare=False)
    samples: int = field(default=0, compare=False)

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key) + len(self.value)

    def headers(self, chain: Chain) -> Sequence[tuple[str, bytes]]:
        """The chain headers of the record; none for one that is not measured."""
        return () if self.due_ms is None else chain.first(due_at_ms=self.due_ms)


def chunk_records(
    fragment: Fragment, kind: Kind, order: int, *, window_ms: int, part_bytes_max: int, due_ms: int | None = None
) -> list[ChunkRecord]:
    """The parts of one chunk. order: the order in the key, see ChunkKey."""
    parts = encode_chunk(fragment, window_ms=window_ms, part_bytes_max=part_bytes_max)
    return [
        ChunkRecord(
            encode_key(ChunkKey(fragment.pack_id, fragment.window_start_ms, kind, order, number)),
            value,
            due_ms,
            0 if number else fragment.samples,
        )
        for number, value in enumerate(parts)
    ]


def late_records(minute: LateMinute, *, window_ms: int, part_bytes_max: int) -> list[ChunkRecord]:
    """The chunks of an ended late minute, ascending by (pack, window)."""
    records: list[ChunkRecord] = []
    for fragment in minute.fragments(window_ms):
        records += chunk_records(
            fragment,
            Kind.LATE,
            minute.first_offset,
            window_ms=window_ms,
            part_bytes_max=part_bytes_max,
            due_ms=minute.end_ms,
        )
    return records


def window_record(window_start_ms: int, marker: WindowMarker) -> ChunkRecord:
    """The window marker of a finished window."""
    return ChunkRecord(encode_key(WindowKey(window_start_ms)), encode_window_marker(marker))


def hole_record(hole: HoleRecord) -> ChunkRecord:
    key = HoleKey(hole.pack_id, hole.start_ms, hole.end_ms, hole.record_offset)
    return ChunkRecord(encode_key(key), encode_hole(hole))
