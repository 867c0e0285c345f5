"""Select over the heads of a store: exact or an error.

Freshness and the applied offset are taken before the samples are gathered, coverage and holes after: all move forward
only, so an answer holds what it says, and perhaps a little more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.head.gather import ColumnsResult, RawResult
from tsdb.head.gather_many import gather_columns_many
from tsdb.head.head import Head
from tsdb.model.errors import Overloaded
from tsdb.store.frames import FRAME_BYTES_MAX, column_frames, raw_frames, series_block
from tsdb.store.limits import SelectLimits
from tsdb.store.partition import Partition, PartitionStatus
from tsdb.store.request import SelectQuery
from tsdb.store.tolerance import Tolerance
from tsdb.v1 import common_pb2, reader_pb2

Response = reader_pb2.SelectResponse


@dataclass(slots=True)
class Gathered:
    """What one partition gives to an answer."""

    partition: int
    series_ids: NDArray[np.uint64]
    labels: tuple[bytes, NDArray[np.uint32]] | None
    data: RawResult | ColumnsResult
    status: PartitionStatus


def gather(
    partitions: list[Partition], query: SelectQuery, tolerance: Tolerance, limits: SelectLimits
) -> list[Gathered]:
    """Everything of an answer, before its first frame is sent: an error leaves no half answer behind."""
    moments = [partition.moment() for partition in partitions]
    for _, status in moments:
        tolerance.check_fresh(status)
        _check_held(status, query, tolerance)
    heads = [head for head, _ in moments]
    refs = [_refs(head, query) for head in heads]
    limits.check_series(sum(map(len, refs)))
    data = _columns(heads, refs, query, limits) if query.columns else _raw(heads, refs, query, limits)
    limits.check_bytes(sum(one.payload_bytes for one in data))
    parts = []
    for (head, status), some, one in zip(moments, refs, data, strict=True):
        labels = head.index.labels_of(some) if query.labels else None
        series_ids = head.index.series_ids_of(some)
        parts.append(Gathered(status.partition, series_ids, labels, one, status.through(head.state())))
        _check_held(parts[-1].status, query, tolerance)
    return parts


def _check_held(status: PartitionStatus, query: SelectQuery, tolerance: Tolerance) -> None:
    if not query.partial:
        status.check_coverage(query.start_ms)
    tolerance.check_holes(status, query.start_ms, query.end_ms)


def _refs(head: Head, query: SelectQuery) -> NDArray[np.uint32]:
    if query.series_ids is None:
        return head.index.select(query.matchers)
    return head.index.refs_of(query.series_ids)


def _columns(
    heads: list[Head], refs: list[NDArray[np.uint32]], query: SelectQuery, limits: SelectLimits
) -> Sequence[RawResult | ColumnsResult]:
    try:
        return gather_columns_many(heads, refs, query.start_ms, query.end_ms, samples_max=limits.samples_max)
    except Overloaded as error:
        raise _over_limit(error, limits, 0) from error


def _raw(
    heads: list[Head], refs: list[NDArray[np.uint32]], query: SelectQuery, limits: SelectLimits
) -> Sequence[RawResult | ColumnsResult]:
    found: list[RawResult] = []
    samples = payload_bytes = 0
    for head, some in zip(heads, refs, strict=True):
        try:
            raw = head.gather_raw(
                some,
                query.start_ms,
                query.end_ms,
                step_ms=query.step_ms,
                aggregation=query.aggregation,
                last_n=query.last_n,
                partial=query.partial,
                samples_max=limits.samples_max - samples,
            )
        except Overloaded as error:
            raise _over_limit(error, limits, samples) from error
        samples += raw.samples
        payload_bytes += raw.payload_bytes
        limits.check_bytes(payload_bytes)
        found.append(raw)
    return found


def _over_limit(error: Overloaded, limits: SelectLimits, before: int) -> Overloaded:
    """A head knows what is left of the limit, the caller the limit."""
    try:
        limits.check_samples(before + int(error.metadata["asked"]))
    except Overloaded as told:
        return told
    return error


def responses(parts: list[Gathered]) -> Iterator[Response]:
    """The messages of an answer, each of about FRAME_BYTES_MAX; the last has what is left, and the trailer."""
    response, held_bytes = Response(header=reader_pb2.SelectHeader(partitions=_states(parts))), 0
    for part in parts:
        block = series_block(part.partition, part.series_ids, part.labels)
        response.series.append(block)
        held_bytes += len(block.series_ids) + len(block.labels)
        for frame in _data_frames(part):
            if isinstance(frame, reader_pb2.RawFrame):
                response.raw.append(frame)
                held_bytes += 2 * len(frame.values)
            else:
                response.columns.append(frame)
                held_bytes += len(frame.data)
            if held_bytes >= FRAME_BYTES_MAX:
                yield response
                response, held_bytes = Response(), 0
    response.trailer.series = sum(len(part.series_ids) for part in parts)
    response.trailer.samples = sum(part.data.samples for part in parts)
    response.trailer.bytes = sum(part.data.payload_bytes for part in parts)
    yield response


def _states(parts: list[Gathered]) -> Iterator[common_pb2.PartitionState]:
    return (part.status.to_proto() for part in parts)


def _data_frames(part: Gathered) -> Iterator[reader_pb2.RawFrame | reader_pb2.ColumnsFrame]:
    if isinstance(part.data, RawResult):
        yield from raw_frames(part.partition, part.data)
        return
    yield from column_frames(part.partition, part.data.columns)
    yield from raw_frames(part.partition, part.data.overlay, overlay=True)
