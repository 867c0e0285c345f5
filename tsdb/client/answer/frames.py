"""Frames: the messages of one Select answer, collected by partition and checked.

An answer is a header, a series block and data for each partition, and a trailer; one message holds as many frames as
fit. An answer without a trailer was cut off and is an error, never a short result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tsdb.client.wire import I64, U32, U64, malformed, unpack
from tsdb.model.errors import Unavailable
from tsdb.v1 import common_pb2, reader_pb2


@dataclass(slots=True)
class PartitionFrames:
    """Frames of one partition, in order of arrival."""

    block: common_pb2.SeriesBlock
    raw: list[reader_pb2.RawFrame] = field(default_factory=list)
    overlay: list[reader_pb2.RawFrame] = field(default_factory=list)
    columns: list[reader_pb2.ColumnsFrame] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FramedAnswer:
    """A complete answer that is not decoded. parts: in the order of arrival. states: state of each partition. warnings:
    name samples that may be missing."""

    parts: Sequence[PartitionFrames]
    states: Sequence[common_pb2.PartitionState]
    trailer: reader_pb2.SelectTrailer
    warnings: Sequence[str]


class AnswerFrames:
    """Collects the messages of one answer and checks their order."""

    def __init__(self) -> None:
        self._header: reader_pb2.SelectHeader | None = None
        self._parts: dict[int, PartitionFrames] = {}
        self._trailer: reader_pb2.SelectTrailer | None = None

    def add(self, message: Any) -> None:
        """Add the next SelectResponse. Raises CorruptData (answer_malformed)."""
        if self._trailer is not None:
            raise malformed("a frame after the trailer")
        if message.HasField("header"):
            self._header = message.header
        if self._header is None:
            raise malformed("series or data before the header")
        for block in message.series:
            self._parts[block.partition] = PartitionFrames(block)
        for raw in message.raw:
            part = self._part(raw.partition)
            (part.overlay if raw.overlay else part.raw).append(raw)
        for columns in message.columns:
            self._part(columns.partition).columns.append(columns)
        if message.HasField("trailer"):
            self._trailer = message.trailer

    def finish(self) -> FramedAnswer:
        """Raises Unavailable (answer_cut) without a trailer, CorruptData when the trailer counts other frames."""
        if self._trailer is None or self._header is None:
            raise Unavailable("the answer ended before its trailer: it was cut off", reason="answer_cut")
        self._check(self._trailer)
        header = self._header
        return FramedAnswer(list(self._parts.values()), header.partitions, self._trailer, header.warnings)

    def _part(self, partition: int) -> PartitionFrames:
        if partition not in self._parts:
            raise malformed(f"data of partition {partition} without its series before it")
        return self._parts[partition]

    def _check(self, trailer: reader_pb2.SelectTrailer) -> None:
        series = sum(len(part.block.series_ids) // U64.itemsize for part in self._parts.values())
        samples = sum(_claimed_samples(part) for part in self._parts.values())
        if (series, samples) != (trailer.series, trailer.samples):
            raise malformed(
                f"{series} series and {samples} samples came, the trailer says {trailer.series} and {trailer.samples}"
            )


def _claimed_samples(part: PartitionFrames) -> int:
    total = sum(len(frame.ts_ms) // I64.itemsize for frame in (*part.raw, *part.overlay))
    for frame in part.columns:
        on_axis = unpack(frame.axis_counts, U32, "axis_counts")
        axes = unpack(frame.axis_index, U32, "axis_index")
        if len(axes) and int(axes.max()) >= len(on_axis):
            raise malformed(f"axis {int(axes.max())} of {len(on_axis)}")
        total += int(on_axis[axes].sum(dtype=np.int64))
    return total
