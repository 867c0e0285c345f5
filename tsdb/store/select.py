"""Select over the heads of a store: exact or an error.

Freshness and the applied offset are taken before the samples are gathered, coverage and holes after: all move forward
only, so an answer holds what it says, and perhaps a little more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.head.gather import ColumnsResult, RawResult
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
    parts: list[Gathered] = []
    series = samples = payload_bytes = 0
    for head, status in moments:
        part = _gather_partition(head, status, query, limits, samples)
        if not query.partial:
            part.status.check_coverage(query.start_ms)
        tolerance.check_holes(part.status, query.start_ms, query.end_ms)
        series += len(part.series_ids)
        samples += part.data.samples
        payload_bytes += part.data.payload_bytes
        limits.check_series(series)
        limits.check_samples(samples)
        limits.check_bytes(payload_bytes)
        parts.append(part)
    return parts


def _gather_partition(
    head: Head, status: PartitionStatus, query: SelectQuery, limits: SelectLimits, before: int
) -> Gathered:
    refs = _refs(head, query)
    limits.check_series(len(refs))
    try:
        data = _data(head, refs, query, limits.samples_max - before)
    except Overloaded as error:
        # The head knows what is left of the limit, the caller the limit.
        limits.check_samples(before + int(error.metadata["asked"]))
        raise
    labels = head.index.labels_of(refs) if query.labels else None
    series_ids = head.index.series_ids_of(refs)
    return Gathered(status.partition, series_ids, labels, data, status.through(head.state()))


def _refs(head: Head, query: SelectQuery) -> NDArray[np.uint32]:
    if query.series_ids is None:
        return head.index.select(query.matchers)
    return head.index.refs_of(query.series_ids)


def _data(head: Head, refs: NDArray[np.uint32], query: SelectQuery, samples_max: int) -> RawResult | ColumnsResult:
    if query.columns:
        return head.gather_columns(refs, query.start_ms, query.end_ms, samples_max=samples_max)
    return head.gather_raw(
        refs,
        query.start_ms,
        query.end_ms,
        step_ms=query.step_ms,
        aggregation=query.aggregation,
        last_n=query.last_n,
        partial=query.partial,
        samples_max=samples_max,
    )


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
