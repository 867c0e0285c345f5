"""Pieces: splits Select answers by partition and merges them into one answer.

A store answers its partitions in ascending order, so the answers of several stores merge like sorted files: each is
read only as far as needed, and only the current message is in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tsdb.model.errors import CorruptData, Unavailable
from tsdb.query.join.partition_join import JoinedSamples
from tsdb.reader.frames import FRAME_BYTES_MAX, raw_frames, series_block
from tsdb.reader.limits import SelectLimits
from tsdb.reader.request import SelectSpec
from tsdb.v1 import common_pb2, reader_pb2

Response = reader_pb2.SelectResponse


@dataclass(frozen=True, slots=True)
class Piece:
    """Series and frames of one partition, in the order of arrival."""

    partition: int
    message: Response


class AnswerTotals:
    """Running totals of one answer, for its trailer. Each addition is checked against the limits of the answer."""

    def __init__(self, limits: SelectLimits) -> None:
        self.limits = limits
        self.series = self.samples = self.bytes = 0

    def add(self, series: int, samples: int, payload_bytes: int) -> None:
        """Raises Overloaded (series_limit, samples_limit, bytes_limit)."""
        self.series += series
        self.samples += samples
        self.bytes += payload_bytes
        self.limits.check_series(self.series)
        self.limits.check_samples(self.samples)
        self.limits.check_bytes(self.bytes)


def pieces(messages: Iterable[Response], totals: AnswerTotals | None) -> Iterator[Piece]:
    """The pieces of one store's answer, partitions ascending. Its trailer is added to `totals`, if given.

    Raises Unavailable (answer_cut) when the trailer is missing.
    """
    ended = False
    for message in messages:
        if message.HasField("trailer"):
            ended = True
            if totals is not None:
                totals.add(message.trailer.series, message.trailer.samples, message.trailer.bytes)
        message.ClearField("header")
        message.ClearField("trailer")
        yield from _split(message)
    if not ended:
        raise Unavailable("a store's answer ended before its trailer", reason="answer_cut", retry_after_s=0.1)


def joined_pieces(partitions: Iterable[JoinedSamples], query: SelectSpec) -> Iterator[Piece]:
    """The pieces of joined partitions."""
    for joined in partitions:
        partition = joined.partition
        labels = joined.packed_labels() if query.labels else None
        yield Piece(partition, Response(series=[series_block(partition, joined.series_ids, labels)]))
        # In a COLUMNS answer, samples outside columns are sent as overlay.
        for frame in raw_frames(partition, joined.raw, overlay=query.columns):
            yield Piece(partition, Response(raw=[reader_pb2.RawFrame.FromString(frame.joined())]))


def merged(sources: Sequence[Iterable[Piece]]) -> Iterator[Piece]:
    """Pieces of all sources, partitions ascending. Each partition comes from one source."""
    return heapq.merge(*sources, key=lambda piece: piece.partition)


def packed(
    states: Iterable[common_pb2.PartitionState],
    warnings: Sequence[str],
    parts: Iterable[Piece],
    totals: AnswerTotals,
) -> Iterator[Response]:
    """One answer as messages of about FRAME_BYTES_MAX. The first one has the header, the last one the trailer."""
    ordered = sorted(states, key=lambda state: state.partition)
    held, held_bytes = Response(header=reader_pb2.SelectHeader(partitions=ordered, warnings=warnings)), 0
    for piece in parts:
        held.MergeFrom(piece.message)
        held_bytes += piece.message.ByteSize()
        if held_bytes >= FRAME_BYTES_MAX:
            yield held
            held, held_bytes = Response(), 0
    held.trailer.series, held.trailer.samples, held.trailer.bytes = totals.series, totals.samples, totals.bytes
    yield held


def _split(message: Response) -> Iterator[Piece]:
    numbers = {part.partition for parts in (message.series, message.raw, message.columns) for part in parts}
    if len(numbers) == 1:
        yield Piece(numbers.pop(), message)
        return
    for number in sorted(numbers):
        yield Piece(
            number,
            Response(
                series=[block for block in message.series if block.partition == number],
                raw=[frame for frame in message.raw if frame.partition == number],
                columns=[frame for frame in message.columns if frame.partition == number],
            ),
        )


def whole_partitions(parts: Iterable[Piece]) -> Iterator[tuple[int, list[Response]]]:
    """Whole partitions, ascending, each with all its messages."""
    held: list[Response] = []
    current: int | None = None
    for piece in parts:
        if current is not None and piece.partition != current:
            if piece.partition < current:
                raise CorruptData(
                    f"a store answered partition {piece.partition} after partition {current}", reason="answer_malformed"
                )
            yield current, held
            held = []
        current = piece.partition
        held.append(piece.message)
    if current is not None:
        yield current, held
