"""Select on the wire: its request and its answer, both directions (proto/tsdb/v1/reader.proto).

Messages are few and large: each message costs two hand-overs between threads, more than moving 100 KiB does. A message
that is read is checked before anything relies on it; its arrays are views that cannot be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import (
    Answer,
    AnswerBody,
    AnswerCounts,
    AnswerSeries,
    PackedLabels,
    PartitionAnswer,
    RawResult,
    SealedColumns,
    malformed,
)
from tsdb.answer.spec import SelectSpec
from tsdb.answer.state import MemoryState
from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest, Unavailable
from tsdb.v1 import common_pb2, reader_pb2
from tsdb.wire.fields import F64, I64, U8, U32, U64, Fields, unpack
from tsdb.wire.state import (
    decode_matchers,
    decode_options,
    decode_states,
    encode_matchers,
    encode_options,
    encode_state,
)

FRAME_SAMPLES_MAX = 64 * 1024  # 1 MiB of (timestamp, value).
FRAME_BYTES_MAX = 1 << 20
BUCKETS_A_SAMPLE = 2  # Two bucket counts fill a frame as one sample does.
FRAME_BUCKETS_MAX = 4 * FRAME_SAMPLES_MAX  # More than such frames have, one last wide histogram included.

_RESPONSE = reader_pb2.SelectResponse.DESCRIPTOR.fields_by_name
_HEADER, _SERIES, _RAW, _COLUMNS, _TRAILER = (
    _RESPONSE[name].number for name in ("header", "series", "raw", "columns", "trailer")
)
_STATES, _WARNINGS = (
    reader_pb2.SelectHeader.DESCRIPTOR.fields_by_name[name].number for name in ("partitions", "warnings")
)
_COUNTS, _TS_MS, _VALUES, _ORDERS, _START_TIMES, _HISTOGRAMS = (
    reader_pb2.RawFrame.DESCRIPTOR.fields_by_name[name].number
    for name in ("counts", "ts_ms", "values", "orders", "start_times", "histograms")
)
# The fields of the sections of details, by their tag.
_SECTIONS = {1: "start_times", 2: "histograms"}
_SECTION_FIELDS = {"start_times": _START_TIMES, "histograms": _HISTOGRAMS}
_ARRAYS = tuple(field.name for field in fields(SealedColumns) if field.name != "samples")
_OVERLAY = reader_pb2.RawFrame(overlay=True).SerializeToString()
_ARRAY_FIELDS = [reader_pb2.ColumnsFrame.DESCRIPTOR.fields_by_name[name].number for name in _ARRAYS]


def encode_select(spec: SelectSpec) -> reader_pb2.SelectRequest:
    return reader_pb2.SelectRequest(
        matchers=encode_matchers(spec.matchers),
        series_ids=b"" if spec.series_ids is None else spec.series_ids.astype(U64, copy=False).tobytes(),
        start_ms=spec.start_ms,
        end_ms=spec.end_ms,
        step_ms=spec.step_ms,
        aggregation=reader_pb2.Aggregation.ValueType(spec.aggregation),
        last_n=spec.last_n,
        encoding=reader_pb2.COLUMNS if spec.columns else reader_pb2.RAW,
        options=encode_options(spec.options),
        omit_labels=not spec.labels,
        partial=spec.partial,
        series_max=spec.series_max,
        samples_max=spec.samples_max,
        bytes_max=spec.bytes_max,
        downsampled=spec.downsampled,
    )


def decode_select(request: reader_pb2.SelectRequest) -> SelectSpec:
    """The spec, checked. Raises InvalidRequest naming field, got and limit."""
    if request.encoding not in (reader_pb2.RAW, reader_pb2.COLUMNS):
        raise InvalidRequest(f"encoding {request.encoding} is unknown", reason="bad_encoding")
    spec = SelectSpec(
        matchers=decode_matchers(request.matchers),
        series_ids=_decode_ids(request.series_ids) if request.series_ids else None,
        start_ms=request.start_ms,
        end_ms=request.end_ms,
        step_ms=request.step_ms,
        aggregation=request.aggregation,
        last_n=request.last_n,
        columns=request.encoding == reader_pb2.COLUMNS,
        labels=not request.omit_labels,
        partial=request.partial,
        downsampled=request.downsampled,
        options=decode_options(request.options),
        series_max=request.series_max,
        samples_max=request.samples_max,
        bytes_max=request.bytes_max,
    )
    spec.check()
    return spec


def _decode_ids(data: bytes) -> NDArray[np.uint64]:
    if len(data) % 8:
        raise InvalidRequest(f"series_ids has {len(data)} bytes, not a multiple of 8", reason="bad_series_ids")
    return np.unique(np.frombuffer(data, "<u8"))


class AnswerEncoder:
    """Encodes the answers of one service. Thread-safe.

    Encoding 18 partition states took 166 us of every read, and a store answers with the same states and bodies again
    and again: both stay encoded while they are in use. by_field: order the fields of a message by their numbers.
    """

    def __init__(self, *, by_field: bool = False) -> None:
        self._by_field = by_field
        self._states: dict[int, tuple[MemoryState, bytes]] = {}
        self._bodies: WeakKeyDictionary[AnswerBody, tuple[_Message, ...]] = WeakKeyDictionary()

    def messages(self, answers: Iterable[Answer]) -> Iterator[bytes]:
        """SelectResponse messages, the first with the header and the last with the trailer."""
        for answer in answers:
            header = None if answer.states is None else self._header(answer.states, answer.warnings)
            for message in self._body(answer.body):
                yield message.joined(header, by_field=self._by_field)
                header = None

    def _header(self, states: Sequence[MemoryState], warnings: Sequence[str]) -> bytes:
        header = Fields()
        for state in states:
            known = self._states.get(state.partition)
            if known is None or known[0] is not state:
                known = self._states[state.partition] = state, encode_state(state).SerializeToString()
            header.add_bytes(_STATES, known[1])
        for text in warnings:
            header.add_bytes(_WARNINGS, text.encode())
        return header.joined()

    def _body(self, body: AnswerBody) -> tuple[_Message, ...]:
        found = self._bodies.get(body)
        if found is None:
            found = self._bodies[body] = tuple(_cut(body, by_field=self._by_field))
        return found


class _Message:
    """One SelectResponse without its header. Arrays are referenced, not copied, until it is joined."""

    def __init__(self) -> None:
        self._fields: list[tuple[int, Fields]] = []
        self.nbytes = 0

    def add(self, number: int, value: Fields) -> None:
        field = Fields()
        field.add_message(number, value)
        self._fields.append((number, field))
        self.nbytes += field.size

    def joined(self, header: bytes | None, *, by_field: bool) -> bytes:
        message = Fields()
        if header is not None:
            message.add_bytes(_HEADER, header)
        ordered = sorted(self._fields, key=lambda field: field[0]) if by_field else self._fields
        for _, field in ordered:
            message.add_fields(field)
        return message.joined()


def _cut(body: AnswerBody, *, by_field: bool) -> Iterator[_Message]:
    """Messages of about FRAME_BYTES_MAX; the last has the remaining frames and the trailer."""
    message = _Message()
    for part in body.parts:
        if part.series is not None:
            message.add(_SERIES, Fields(encode_block(part.series).SerializeToString()))
        for number, frame in _frames(part, by_field=by_field):
            message.add(number, frame)
            if message.nbytes >= FRAME_BYTES_MAX:
                yield message
                message = _Message()
    if body.counts is not None:
        series, samples, payload = body.counts
        trailer = reader_pb2.SelectTrailer(series=series, samples=samples, bytes=payload)
        message.add(_TRAILER, Fields(trailer.SerializeToString()))
    if body.counts is not None or message.nbytes:
        yield message


def _frames(part: PartitionAnswer, *, by_field: bool) -> Iterator[tuple[int, Fields]]:
    """Field number in SelectResponse and message, for each frame of a part."""
    for columns in part.columns:
        for frame in column_frames(part.partition, columns):
            yield _COLUMNS, frame
    for overlay in part.overlay:
        for frame in raw_frames(part.partition, overlay, overlay=True, by_field=by_field):
            yield _RAW, frame
    for raw in part.raw:
        for frame in raw_frames(part.partition, raw):
            yield _RAW, frame


def raw_frames(partition: int, raw: RawResult, *, overlay: bool = False, by_field: bool = False) -> Iterator[Fields]:
    """RawFrames of samples, cut at FRAME_SAMPLES_MAX; histograms count by their buckets. A larger series continues in
    the next frame. Arrays are referenced, not copied, until the frame is joined."""
    if not raw.samples:
        return
    # Protobuf writes `overlay` after the arrays.
    head, tail = (b"", _OVERLAY if overlay else b"") if by_field else (_OVERLAY if overlay else b"", b"")
    edges = _edges(raw)
    if len(edges) == 2:
        yield _raw_frame(partition, raw, 0, raw.counts, slice(0, raw.samples), head, tail)
        return
    counts = raw.counts.astype(np.int64)
    ends = np.cumsum(counts)
    for start, end in pairwise(edges):
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, end, side="left"))
        part = np.minimum(ends[first : last + 1], end) - np.maximum(
            ends[first : last + 1] - counts[first : last + 1], start
        )
        yield _raw_frame(partition, raw, first, part, slice(start, end), head, tail)


def _edges(raw: RawResult) -> list[int]:
    """The first sample of each frame, and the number of samples."""
    total, details = raw.samples, raw.details
    if details is None or details.histograms is None or details.histogram_of is None:
        return [*range(0, total, FRAME_SAMPLES_MAX), total]
    sizes = np.ones(total, np.int64)
    where = details.histogram_of >= 0
    sizes[where] += np.diff(details.histograms.starts)[details.histogram_of[where]] // BUCKETS_A_SAMPLE
    before = np.cumsum(sizes) - sizes
    starts = np.searchsorted(before, np.arange(0, int(before[-1]) + 1, FRAME_SAMPLES_MAX))
    return [*np.unique(starts).tolist(), total]


def _raw_frame(
    partition: int, raw: RawResult, first: int, counts: NDArray[Any], samples: slice, head: bytes, tail: bytes
) -> Fields:
    of = reader_pb2.RawFrame(partition=partition, first_series=raw.first_series + first)
    frame = Fields(of.SerializeToString() + head)
    frame.add_array(_COUNTS, counts.astype("<u4", copy=False))
    frame.add_array(_TS_MS, raw.ts_ms[samples])
    frame.add_array(_VALUES, raw.values[samples])
    if raw.orders is not None:
        frame.add_array(_ORDERS, raw.orders[samples])
    if tail:
        frame.add_fields(Fields(tail))
    details = raw.details and raw.details.part(samples.start, samples.stop)
    of_frame = RawResult(counts, raw.ts_ms[samples], raw.values[samples], details=details)
    for name, section in encode_details(of_frame).items():
        frame.add_bytes(_SECTION_FIELDS[name], section)
    return frame


def encode_details(raw: RawResult) -> dict[str, bytes]:
    """The sections of the details, by the fields of a message that has them. A group is the samples of one series."""
    if raw.details is None:
        return {}
    # Imported here, because readers of RAW need no library of kernels.
    from tsdb.codec.columns.details import EncodedDetails

    encoded = EncodedDetails(raw.details, raw.ts_ms, raw.values, _starts_of(raw.counts), dense=False)
    return {_SECTIONS[tag]: section for tag, section in encoded.sections(0, len(raw.counts))}


def _starts_of(counts: NDArray[Any]) -> NDArray[np.int64]:
    """The first sample of each series, and the number of samples."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def column_frames(partition: int, columns: SealedColumns) -> Iterator[Fields]:
    """ColumnsFrames of columns, cut at FRAME_BYTES_MAX of data.

    Every frame carries the range of axes that its columns refer to. Arrays are not copied.
    """
    total = len(columns.series_index)
    if len(columns.data) <= FRAME_BYTES_MAX:
        if total:
            yield _column_frame(partition, columns)
        return
    ends = np.cumsum(columns.column_lengths, dtype=np.int64)
    first, start = 0, 0
    while first < total:
        last = max(first + 1, int(np.searchsorted(ends, start + FRAME_BYTES_MAX, side="right")))
        end = int(ends[last - 1])
        yield _column_frame(partition, _part(columns, slice(first, last), slice(start, end)))
        first, start = last, end


def _column_frame(partition: int, columns: SealedColumns) -> Fields:
    frame = Fields(reader_pb2.ColumnsFrame(partition=partition).SerializeToString())
    for number, array in zip(_ARRAY_FIELDS, columns.arrays(), strict=True):
        frame.add_array(number, array)
    return frame


def _part(columns: SealedColumns, part: slice, data: slice) -> SealedColumns:
    """The columns at positions `part`; `data` is the byte range of their values."""
    axis_index = columns.axis_index[part]
    axes = slice(int(axis_index.min()), int(axis_index.max()) + 1)
    axis_data = slice(
        int(columns.axis_lengths[: axes.start].sum(dtype=np.int64)),
        int(columns.axis_lengths[: axes.stop].sum(dtype=np.int64)),
    )
    return SealedColumns(
        samples=columns.samples,
        series_index=columns.series_index[part],
        column_lengths=columns.column_lengths[part],
        axis_index=axis_index - np.uint32(axes.start),
        axis_base_ms=columns.axis_base_ms[axes],
        axis_lengths=columns.axis_lengths[axes],
        axis_counts=columns.axis_counts[axes],
        axes=columns.axes[axis_data],
        data=columns.data[data],
    )


class AnswerDecoder:
    """Reads the messages of one answer, in order, and checks them. An answer without a trailer was cut off and is an
    error, never a short result."""

    def __init__(self) -> None:
        self._series: set[int] = set()
        self._counted_series = self._counted_samples = 0
        self._begun = False
        self._counts: AnswerCounts | None = None

    def add(self, message: Any) -> Answer:
        """The next SelectResponse. Raises CorruptData (answer_malformed)."""
        if self._counts is not None:
            raise malformed("a frame after the trailer")
        states: tuple[MemoryState, ...] | None = None
        if message.HasField("header"):
            states, self._begun = decode_states(message.header), True
        if not self._begun:
            raise malformed("series or data before the header")
        parts = self._parts(message)
        if message.HasField("trailer"):
            trailer = message.trailer
            self._counts = AnswerCounts(trailer.series, trailer.samples, trailer.bytes)
        body = AnswerBody(parts, self._counts, sum(map(_nbytes, parts)))
        return Answer(body, states, tuple(message.header.warnings) if states is not None else ())

    def finish(self) -> None:
        """Raises Unavailable (answer_cut) without a trailer, CorruptData when the trailer counts other frames."""
        if self._counts is None:
            raise Unavailable("the answer ended before its trailer: it was cut off", reason="answer_cut")
        counted = self._counted_series, self._counted_samples
        if counted != self._counts[:2]:
            raise malformed(
                f"{counted[0]} series and {counted[1]} samples came, the trailer says {self._counts.series} and"
                f" {self._counts.samples}"
            )

    def _parts(self, message: Any) -> list[PartitionAnswer]:
        blocks: dict[int, AnswerSeries] = {}
        columns: dict[int, list[SealedColumns]] = {}
        overlay: dict[int, list[RawResult]] = {}
        raw: dict[int, list[RawResult]] = {}
        for block in message.series:
            if block.partition in self._series:
                raise malformed(f"the series of partition {block.partition} came twice")
            self._series.add(block.partition)
            blocks[block.partition] = decode_block(block)
        for frame in message.raw:
            (overlay if frame.overlay else raw).setdefault(frame.partition, []).append(decode_raw(frame))
        for frame in message.columns:
            columns.setdefault(frame.partition, []).append(decode_columns(frame))
        partitions = sorted({*blocks, *columns, *overlay, *raw})
        for partition in partitions:
            if partition not in self._series:
                raise malformed(f"data of partition {partition} without its series before it")
        self._counted_series += sum(map(len, blocks.values()))
        self._counted_samples += sum(
            one.samples for kind in (columns, overlay, raw) for ones in kind.values() for one in ones
        )
        return [
            PartitionAnswer(
                partition,
                blocks.get(partition),
                columns.get(partition, ()),
                overlay.get(partition, ()),
                raw.get(partition, ()),
            )
            for partition in partitions
        ]


def decoded(messages: Iterable[Any]) -> Iterator[Answer]:
    """The answers of the messages of one select. Raises as AnswerDecoder."""
    decoder = AnswerDecoder()
    for message in messages:
        yield decoder.add(message)
    decoder.finish()


def decode_raw(frame: reader_pb2.RawFrame) -> RawResult:
    """Raises CorruptData (answer_malformed)."""
    counts = unpack(frame.counts, U32, "counts")
    total = int(counts.sum(dtype=np.int64))
    found = RawResult(
        counts,
        unpack(frame.ts_ms, I64, "ts_ms", total),
        unpack(frame.values, F64, "values", total),
        unpack(frame.orders, I64, "orders", total) if frame.orders else None,
        frame.first_series,
    )
    found.details = decode_sections(frame, found, FRAME_BUCKETS_MAX)
    return found


def decode_sections(
    message: reader_pb2.RawFrame | reader_pb2.WatchResponse, raw: RawResult, bucket_counts_max: int
) -> SampleDetails | None:
    """The details that a message has of these samples. Raises CorruptData, also above bucket_counts_max."""
    if not message.start_times and not message.histograms:
        return None
    from tsdb.codec.columns.details import Tag, decode_details

    sections = [(Tag(tag), getattr(message, name)) for tag, name in _SECTIONS.items()]
    columns = raw.ts_ms.copy(), raw.values.copy(), _starts_of(raw.counts)  # Kernels take arrays that can be written.
    return decode_details([one for one in sections if one[1]], *columns, bucket_counts_max=bucket_counts_max)


def decode_columns(frame: reader_pb2.ColumnsFrame) -> SealedColumns:
    """Checked as far as the number of samples; decoding checks the rest."""
    axis_index, axis_counts = unpack(frame.axis_index, U32, "axis_index"), unpack(frame.axis_counts, U32, "axis_counts")
    if len(axis_index) and int(axis_index.max()) >= len(axis_counts):
        raise malformed(f"axis {int(axis_index.max())} of {len(axis_counts)}")
    return SealedColumns(
        samples=int(axis_counts[axis_index].sum(dtype=np.int64)),
        series_index=unpack(frame.series_index, U32, "series_index"),
        column_lengths=unpack(frame.column_lengths, U32, "column_lengths"),
        axis_index=axis_index,
        axis_base_ms=unpack(frame.axis_base_ms, I64, "axis_base_ms"),
        axis_lengths=unpack(frame.axis_lengths, U32, "axis_lengths"),
        axis_counts=axis_counts,
        axes=unpack(frame.axes, U8, "axes"),
        data=unpack(frame.data, U8, "data"),
    )


def _nbytes(part: PartitionAnswer) -> int:
    samples = sum(one.payload_bytes for kind in (part.columns, part.overlay, part.raw) for one in kind)
    return samples + (0 if part.series is None else part.series.nbytes)


def encode_block(series: AnswerSeries) -> common_pb2.SeriesBlock:
    block = common_pb2.SeriesBlock(
        partition=series.partition, series_ids=series.series_ids.astype(U64, copy=False).tobytes()
    )
    if series.labels is not None:
        block.labels = series.labels.joined
        block.label_lengths = series.labels.lengths.astype(U32, copy=False).tobytes()
    if series.first_ms is not None and series.last_ms is not None:
        block.first_seen_ms = series.first_ms.astype(I64, copy=False).tobytes()
        block.last_seen_ms = series.last_ms.astype(I64, copy=False).tobytes()
    return block


def decode_block(block: common_pb2.SeriesBlock) -> AnswerSeries:
    """Raises CorruptData (answer_malformed)."""
    ids = unpack(block.series_ids, U64, "series_ids")
    labels = None
    if block.label_lengths:
        labels = PackedLabels(block.labels, unpack(block.label_lengths, U32, "label_lengths", len(ids)))
        total = int(labels.lengths.sum(dtype=np.int64))
        if total != len(labels.joined):
            raise malformed(f"labels have {len(labels.joined)} bytes, lengths say {total}")
    return AnswerSeries(
        block.partition,
        ids,
        labels,
        unpack(block.first_seen_ms, I64, "first_seen_ms", len(ids)) if block.first_seen_ms else None,
        unpack(block.last_seen_ms, I64, "last_seen_ms", len(ids)) if block.last_seen_ms else None,
    )
