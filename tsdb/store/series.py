"""Series over the heads of a store: finds the matching series with their first and last sample times, or counts per
group."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.head.head import Head
from tsdb.reader.frames import series_block
from tsdb.reader.limits import SelectLimits
from tsdb.reader.read_call import ReadWork
from tsdb.reader.request import SeriesSpec
from tsdb.store.partition import Partition, StorePartitionStatus
from tsdb.store.response_header import warnings
from tsdb.store.selection import BLOCK_COPIES
from tsdb.store.tolerance import Tolerance
from tsdb.v1 import common_pb2, reader_pb2

Response = reader_pb2.SeriesResponse

SERIES_BYTES = 28  # Bytes of a series in a block beside its labels: id, first and last time, length.


@dataclass(slots=True)
class SeriesMatch:
    """Matching series of one partition, ascending by id."""

    head: Head
    refs: NDArray[np.uint32]
    status: StorePartitionStatus


def find(
    partitions: list[Partition],
    query: SeriesSpec,
    tolerance: Tolerance,
    limits: SelectLimits,
    work: ReadWork,
) -> list[SeriesMatch]:
    """The matching series: exact or an error. Raises as Select for a start before coverage and a hole in the range."""
    snapshots = [partition.evaluate() for partition in partitions]
    for _, snapshot in snapshots:
        tolerance.check_fresh(snapshot, query.needed_end_ms)
    found = []
    for head, snapshot in snapshots:
        before = head.state()
        work.check_going()
        refs = head.index.select(query.matchers, work.check_going) if query.matchers else head.index.all_refs()
        status = snapshot.status(before)
        if query.ranged:
            refs = refs[head.has_samples(refs, query.start_ms, query.end_ms)]
            status = snapshot.status(before.through(head.state()))
            if query.start_given:
                status.check_coverage(query.start_ms)
            tolerance.check_holes(status, query.start_ms, query.end_ms)
        found.append(SeriesMatch(head, refs, status))
    if not query.group_by:
        limits.check_series(sum(len(part.refs) for part in found))
    return found


def frames(found: list[SeriesMatch], query: SeriesSpec, work: ReadWork) -> Iterator[Response]:
    """The header, then the counts of groups or the series of each partition. A block is built when it is sent."""
    statuses = [part.status for part in found]
    header = reader_pb2.SelectHeader(
        partitions=[status.to_proto() for status in statuses], warnings=warnings(statuses, query.needed_end_ms)
    )
    yield Response(header=header)
    if query.group_by:
        yield Response(groups=_groups(found, query.group_by))
        return
    for part in found:
        work.check_going()
        work.hold(BLOCK_COPIES * (part.head.index.label_bytes(part.refs) + SERIES_BYTES * len(part.refs)))
        yield Response(series=_seen(part))


def _seen(part: SeriesMatch) -> common_pb2.SeriesBlock:
    index = part.head.index
    block = series_block(part.status.partition, index.series_ids_of(part.refs), index.labels_of(part.refs))
    first_ms, last_ms = part.head.seen(part.refs)
    block.first_seen_ms = first_ms.astype("<i8").tobytes()
    block.last_seen_ms = last_ms.astype("<i8").tobytes()
    return block


def _groups(found: list[SeriesMatch], names: tuple[str, ...]) -> reader_pb2.SeriesGroups:
    tally: Tally[tuple[str, ...]] = Tally()
    for part in found:
        tally.update(part.head.index.group_counts(list(names), part.refs))
    groups = [reader_pb2.SeriesGroups.Group(values=values, series=count) for values, count in sorted(tally.items())]
    return reader_pb2.SeriesGroups(groups=groups)
