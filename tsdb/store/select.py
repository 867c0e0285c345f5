"""Select over the heads of a store: exact or an error.

Freshness is judged before the samples are gathered, coverage and holes by the state that the heads had as they were
read: an answer holds what it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tsdb.head.gather import RawResult, Touched
from tsdb.head.gather_many import ManyRefs, columns_many, snapshot_many
from tsdb.head.head import Head, HeadState
from tsdb.model.errors import Overloaded
from tsdb.store.encoded import EncodedColumns
from tsdb.store.frames import FRAME_BYTES_MAX, raw_frames
from tsdb.store.limits import SelectLimits
from tsdb.store.partition import Partition, PartitionStatus
from tsdb.store.request import SelectQuery
from tsdb.store.selection import Selection, Selections
from tsdb.store.tolerance import Tolerance
from tsdb.store.wire import Fields
from tsdb.v1 import reader_pb2

_FIELDS = reader_pb2.SelectResponse.DESCRIPTOR.fields_by_name
HEADER, SERIES, RAW, COLUMNS, TRAILER = (
    _FIELDS[name].number for name in ("header", "series", "raw", "columns", "trailer")
)


@dataclass(frozen=True, slots=True)
class Part:
    """What one partition gives to an answer. block: its series, a SeriesBlock message. raw: RAW, or what wins over
    columns."""

    status: PartitionStatus
    block: bytes
    columns: EncodedColumns | None
    raw: RawResult


@dataclass(frozen=True, slots=True)
class Answer:
    """parts: ascending by partition. samples: of whole columns, before trimming. payload_bytes: of the samples."""

    parts: list[Part]
    series: int
    samples: int
    payload_bytes: int


Data = tuple[HeadState, EncodedColumns | None, RawResult]


def gather(
    partitions: list[Partition],
    query: SelectQuery,
    tolerance: Tolerance,
    limits: SelectLimits,
    selections: Selections,
) -> Answer:
    """Everything of an answer, before its first message is sent: an error leaves no half answer behind."""
    judged = [partition.judge() for partition in partitions]
    for _, one in judged:
        tolerance.check_fresh(one)
    heads = [head for head, _ in judged]
    selection = selections.select(heads, query, limits)
    found = (_columns if query.columns else _raw)(heads, selection, query, limits)
    parts = [
        Part(one.status(state), selected.block, columns, raw)
        for (_, one), selected, (state, columns, raw) in zip(judged, selection.parts, found, strict=True)
    ]
    for part in parts:
        if not query.partial:
            part.status.check_coverage(query.start_ms)
        tolerance.check_holes(part.status, query.start_ms, query.end_ms)
    samples = sum(raw.samples + (columns.samples if columns else 0) for _, columns, raw in found)
    payload_bytes = sum(raw.payload_bytes + (columns.payload_bytes if columns else 0) for _, columns, raw in found)
    limits.check_samples(samples)
    limits.check_bytes(payload_bytes)
    selections.remember(heads, query, selection)
    return Answer(parts, len(selection.refs.refs), samples, payload_bytes)


def _columns(heads: list[Head], selection: Selection, query: SelectQuery, limits: SelectLimits) -> list[Data]:
    snapshot = snapshot_many(heads, selection.refs, query.start_ms, query.end_ms, selection.collected)
    selection.keep_collected(snapshot.collected)
    if any(len(held.below) for held in snapshot.held):
        return _columns_each(heads, selection, query, limits)
    # Looked at once: another read of the same selection may replace them by those of its own range.
    known = [part.columns for part in selection.parts]
    missing = [
        number
        for number, (columns, held) in enumerate(zip(known, snapshot.held, strict=True))
        if columns is None or not columns.is_of(held, query.start_ms, query.end_ms)
    ]
    if missing:
        touched = [Touched.by(snapshot.held[number], query.start_ms, query.end_ms) for number in missing]
        refs = ManyRefs.of([selection.parts[number].refs for number in missing])
        with _limited(limits):
            fresh = columns_many([one.rows for one in touched], refs, samples_max=limits.samples_max)
        for number, slices, columns in zip(missing, touched, fresh, strict=True):
            known[number] = EncodedColumns.of(heads[number].partition, snapshot.held[number], slices, columns)
            selection.keep(number, known[number])
    return list(zip(snapshot.states, known, snapshot.overlays, strict=True))


def _columns_each(heads: list[Head], selection: Selection, query: SelectQuery, limits: SelectLimits) -> list[Data]:
    """Slices of late samples below coverage have to be decoded and merged: rare, and a head's own business."""
    found: list[Data] = []
    for head, part in zip(heads, selection.parts, strict=True):
        before, held = head.state(), head.contents.held
        with _limited(limits):
            result = head.gather_columns(part.refs, query.start_ms, query.end_ms, samples_max=limits.samples_max)
        touched = Touched.by(held, query.start_ms, query.end_ms)
        columns = EncodedColumns.of(head.partition, held, touched, result.columns)
        found.append((before.through(head.state()), columns, result.overlay))
    return found


def _raw(heads: list[Head], selection: Selection, query: SelectQuery, limits: SelectLimits) -> list[Data]:
    found: list[Data] = []
    samples = payload_bytes = 0
    for head, part in zip(heads, selection.parts, strict=True):
        before = head.state()
        with _limited(limits, samples):
            raw = head.gather_raw(
                part.refs,
                query.start_ms,
                query.end_ms,
                step_ms=query.step_ms,
                aggregation=query.aggregation,
                last_n=query.last_n,
                partial=query.partial,
                samples_max=limits.samples_max - samples,
            )
        samples += raw.samples
        payload_bytes += raw.payload_bytes
        limits.check_bytes(payload_bytes)
        found.append((before.through(head.state()), None, raw))
    return found


@contextmanager
def _limited(limits: SelectLimits, before: int = 0) -> Iterator[None]:
    """A head knows what is left of the limit on samples, the caller the limit."""
    try:
        yield
    except Overloaded as error:
        limits.check_samples(before + int(error.metadata["asked"]))
        raise


def messages(answer: Answer) -> Iterator[bytes]:
    """Encoded SelectResponses, each of about FRAME_BYTES_MAX; the last has what is left, and the trailer."""
    header = reader_pb2.SelectHeader(partitions=[part.status.to_proto() for part in answer.parts])
    message = Fields()
    message.add_bytes(HEADER, header.SerializeToString())
    for part in answer.parts:
        message.add_bytes(SERIES, part.block)
        for number, frame in _frames(part):
            message.add_message(number, frame)
            if message.size >= FRAME_BYTES_MAX:
                yield message.joined()
                message = Fields()
    trailer = reader_pb2.SelectTrailer(series=answer.series, samples=answer.samples, bytes=answer.payload_bytes)
    message.add_bytes(TRAILER, trailer.SerializeToString())
    yield message.joined()


def _frames(part: Part) -> Iterator[tuple[int, Fields]]:
    """(field of SelectResponse, message)."""
    if part.columns is not None:
        for frame in part.columns.frames:
            yield COLUMNS, Fields(frame)
    for raw in raw_frames(part.status.partition, part.raw, overlay=part.columns is not None):
        yield RAW, raw
