"""Select over the heads of a store: exact or an error.

Freshness is judged before the samples are gathered; the applied offset is from before the series were chosen; coverage
and holes are those of the heads as they were read: an answer holds what it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tsdb.head.gather import COLLECT_PER_REF, SAMPLE_BYTES, RawResult, Touched
from tsdb.head.gather_many import LastStanding, ManyRefs, columns_many, snapshot_many
from tsdb.head.head import Head, HeadState
from tsdb.model.errors import Overloaded
from tsdb.store.body import Body, Part
from tsdb.store.encoded import EncodedColumns
from tsdb.store.limits import SelectLimits
from tsdb.store.partition import Judged, Partition
from tsdb.store.read_call import NO_BOUNDS, ReadWork
from tsdb.store.request import SelectQuery
from tsdb.store.selection import Selection, Selections
from tsdb.store.told import LastTold, Told
from tsdb.store.tolerance import Tolerance
from tsdb.store.wire import Fields
from tsdb.v1 import reader_pb2

COPIES = 2  # Columns are gathered, then encoded; open samples are collected, then put in order.
HEADER = reader_pb2.SelectResponse.DESCRIPTOR.fields_by_name["header"].number


class ReadMemory:
    """What reads leave for those after them; all of it could be made anew. Thread-safe."""

    def __init__(self) -> None:
        self.selections = Selections()
        self.standing = LastStanding()
        self.told = LastTold()


@dataclass(frozen=True, slots=True)
class Answer:
    """told: of the partitions that were read."""

    told: Told
    body: Body


def gather(
    partitions: list[Partition],
    query: SelectQuery,
    tolerance: Tolerance,
    limits: SelectLimits,
    memory: ReadMemory,
    work: ReadWork = NO_BOUNDS,
) -> Answer:
    """Everything of an answer, before its first message is sent: an error leaves no half answer behind. partitions:
    ascending. work: asked between pieces of work, and before memory is taken; it may raise."""
    heads: list[Head] = []
    judged: list[Judged] = []
    for partition in partitions:
        head, one = partition.judge()
        tolerance.check_fresh(one)
        heads.append(head)
        judged.append(one)
    # Before the series are chosen: a sample of a series that came after must not be below the stated offset.
    before = [head.state() for head in heads]
    selection = memory.selections.select(heads, query, limits, work)
    work.check_going()
    if query.columns:
        after, body = _columns(heads, selection, query, limits, memory.standing, work)
    else:
        after, body = _raw(heads, selection, query, limits, work)
    states = [early.through(late) for early, late in zip(before, after, strict=True)]
    told = memory.told.of(partitions, judged, states)
    if not query.partial:
        told.check_coverage(query.start_ms)
    told.check_holes(tolerance, query.start_ms, query.end_ms)
    limits.check_samples(body.samples)
    limits.check_bytes(body.payload_bytes)
    work.hold(body.bytes)
    memory.selections.remember(heads, query, selection)
    return Answer(told, body)


def _columns(
    heads: list[Head],
    selection: Selection,
    query: SelectQuery,
    limits: SelectLimits,
    standing: LastStanding,
    work: ReadWork,
) -> tuple[list[HeadState], Body]:
    work.hold(_collecting_bytes(heads, selection))
    snapshot = snapshot_many(heads, selection.refs, query.start_ms, query.end_ms, selection.collected, standing)
    selection.keep_collected(snapshot.collected)
    if any(len(held.below) for held in snapshot.held):
        return _columns_each(heads, selection, query, limits, work)
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
        before = selection.bytes
        with _limited(limits):
            fresh = columns_many(
                [one.rows for one in touched],
                refs,
                samples_max=limits.samples_max,
                admit=lambda size: work.hold(before + COPIES * size),
            )
        for number, slices, columns in zip(missing, touched, fresh, strict=True):
            known[number] = EncodedColumns.of(heads[number].partition, snapshot.held[number], slices, columns)
            selection.keep(number, known[number])
    body = selection.body_of(known, snapshot.overlay)
    if body is None:
        body = _body(heads, selection, known, snapshot.overlay.split(selection.refs.ends))
        if snapshot.overlay is snapshot.collected.raw:  # Else it is a copy for this range, not worth its memory.
            selection.keep_body(known, snapshot.overlay, body)
    return snapshot.states, body


def _columns_each(
    heads: list[Head], selection: Selection, query: SelectQuery, limits: SelectLimits, work: ReadWork
) -> tuple[list[HeadState], Body]:
    """Slices of late samples below coverage have to be decoded and merged: rare, and a head's own business."""
    states: list[HeadState] = []
    encoded: list[EncodedColumns | None] = []
    overlays: list[RawResult] = []
    taken = selection.bytes
    for head, part in zip(heads, selection.parts, strict=True):
        work.check_going()
        held = head.contents.held
        with _limited(limits):
            result = head.gather_columns(part.refs, query.start_ms, query.end_ms, samples_max=limits.samples_max)
        touched = Touched.by(held, query.start_ms, query.end_ms)
        encoded.append(EncodedColumns.of(head.partition, held, touched, result.columns))
        overlays.append(result.overlay)
        states.append(head.state())
        taken += COPIES * result.payload_bytes
        work.hold(taken)
    return states, _body(heads, selection, encoded, overlays)


def _raw(
    heads: list[Head], selection: Selection, query: SelectQuery, limits: SelectLimits, work: ReadWork
) -> tuple[list[HeadState], Body]:
    states: list[HeadState] = []
    found: list[RawResult] = []
    samples = payload_bytes = 0
    before = selection.bytes
    # All of it at once: reads that each hold a part and wait for more would wait for each other.
    whole = before + _raw_bytes(heads, selection, query)
    work.hold(whole)

    def admit(size: int) -> None:
        work.hold(max(whole, before + payload_bytes + size))

    for head, part in zip(heads, selection.parts, strict=True):
        work.check_going()
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
                admit=admit,
            )
        samples += raw.samples
        payload_bytes += raw.payload_bytes
        limits.check_bytes(payload_bytes)
        found.append(raw)
        states.append(head.state())
    return states, _body(heads, selection, [None] * len(heads), found)


def _collecting_bytes(heads: list[Head], selection: Selection) -> int:
    """Memory that it takes to collect what is open of a selection: before it was, what is expected."""
    if selection.collected is None:
        parts = zip(heads, selection.parts, strict=True)
        return selection.bytes + COPIES * sum(head.open_bytes_expected(len(part.refs)) for head, part in parts)
    room = COLLECT_PER_REF * len(selection.refs.refs) + selection.collected.raw.samples
    return COPIES * SAMPLE_BYTES * room


def _raw_bytes(heads: list[Head], selection: Selection, query: SelectQuery) -> int:
    """Memory that a RAW answer takes until it is gathered, open samples as expected."""
    sizes = [
        head.sealed_bytes(part.refs, query.start_ms, query.end_ms) + COPIES * head.open_bytes_expected(len(part.refs))
        for head, part in zip(heads, selection.parts, strict=True)
    ]
    # Of steps and of the newest little is kept: heads are gathered one after another.
    return max(sizes, default=0) if query.step_ms or query.last_n else sum(sizes)


def _body(
    heads: list[Head], selection: Selection, columns: Sequence[EncodedColumns | None], raws: Sequence[RawResult]
) -> Body:
    return Body.of(
        [
            Part(head.partition, selected.block, encoded, raw)
            for head, selected, encoded, raw in zip(heads, selection.parts, columns, raws, strict=True)
        ],
        len(selection.refs.refs),
    )


@contextmanager
def _limited(limits: SelectLimits, before: int = 0) -> Iterator[None]:
    """A head knows what is left of the limit on samples, the caller the limit."""
    try:
        yield
    except Overloaded as error:
        if error.reason != "samples_limit":
            raise
        limits.check_samples(before + int(error.metadata["asked"]))
        raise


def messages(answer: Answer) -> Iterator[bytes]:
    """Encoded SelectResponses, the first with the header."""
    message = Fields()
    message.add_bytes(HEADER, answer.told.header)
    for fields in answer.body.messages:
        message.add_fields(fields)
        yield message.joined()
        message = Fields()
