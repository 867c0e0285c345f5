"""Body: the part of an answer after its header. In wire order it has series and samples, partition by partition, and
then the trailer.

A body lists the buffers of its messages. They are copied only when a message is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tsdb.head.read.gather import RawResult
from tsdb.reader.frames import FRAME_BYTES_MAX, raw_frames
from tsdb.reader.wire import Fields
from tsdb.store.encoded import EncodedColumns
from tsdb.v1 import reader_pb2

_FIELDS = reader_pb2.SelectResponse.DESCRIPTOR.fields_by_name
SERIES, RAW, COLUMNS, TRAILER = (_FIELDS[name].number for name in ("series", "raw", "columns", "trailer"))


@dataclass(frozen=True, slots=True)
class BodyPart:
    """The part of a body for one partition. block: its series, an encoded SeriesBlock. raw: the samples of a RAW
    answer; in a COLUMNS answer the overlay, whose samples replace those of the columns."""

    partition: int
    block: bytes
    columns: EncodedColumns | None
    raw: RawResult


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """messages: SelectResponses of about FRAME_BYTES_MAX each; the last one has the remaining frames and the trailer.
    samples: counted in whole columns, before trimming. payload_bytes: bytes of the samples. bytes: bytes of the
    messages."""

    messages: tuple[Fields, ...]
    series: int
    samples: int
    payload_bytes: int
    bytes: int

    @classmethod
    def of(cls, parts: Sequence[BodyPart], series: int) -> Body:
        """parts: ascending by partition. series: number of series in all parts."""
        samples = sum(part.raw.samples + (part.columns.samples if part.columns else 0) for part in parts)
        payload_bytes = sum(
            part.raw.payload_bytes + (part.columns.payload_bytes if part.columns else 0) for part in parts
        )
        trailer = reader_pb2.SelectTrailer(series=series, samples=samples, bytes=payload_bytes)
        messages = tuple(_messages(parts, trailer.SerializeToString()))
        return cls(messages, series, samples, payload_bytes, sum(message.size for message in messages))


def _messages(parts: Sequence[BodyPart], trailer: bytes) -> Iterator[Fields]:
    message = Fields()
    for part in parts:
        message.add_bytes(SERIES, part.block)
        for number, frame in _frames(part):
            message.add_message(number, frame)
            if message.size >= FRAME_BYTES_MAX:
                yield message
                message = Fields()
    message.add_bytes(TRAILER, trailer)
    yield message


def _frames(part: BodyPart) -> Iterator[tuple[int, Fields]]:
    """Field number in SelectResponse and message, for each frame of a part."""
    if part.columns is not None:
        for frame in part.columns.frames:
            yield COLUMNS, Fields(frame)
    for raw in raw_frames(part.partition, part.raw, overlay=part.columns is not None):
        yield RAW, raw
