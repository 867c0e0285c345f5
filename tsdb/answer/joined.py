"""Joined: the answers of one select become arrays of its series: partition by partition, trimmed to the range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import Admit, Answer, AnswerSeries, PartitionAnswer, RawResult, malformed


def joined_parts(answers: Iterable[Answer]) -> list[PartitionAnswer]:
    """The parts of one select, ascending by partition, each partition in one part."""
    bodies = [answer.body for answer in answers]
    if len(bodies) == 1:
        return list(bodies[0].parts)
    pieces: dict[int, list[PartitionAnswer]] = {}
    for body in bodies:
        for part in body.parts:
            pieces.setdefault(part.partition, []).append(part)
    return [one_part(pieces[partition]) for partition in sorted(pieces)]


def one_part(pieces: Sequence[PartitionAnswer]) -> PartitionAnswer:
    """The parts of one partition as one. Raises CorruptData (answer_malformed) unless exactly one of them has its
    series."""
    if len(pieces) == 1 and pieces[0].series is not None:
        return pieces[0]
    blocks = [piece.series for piece in pieces if piece.series is not None]
    if len(blocks) != 1:
        raise malformed(f"{len(blocks)} series blocks of one partition")
    return PartitionAnswer(
        pieces[0].partition,
        blocks[0],
        [one for piece in pieces for one in piece.columns],
        [one for piece in pieces for one in piece.overlay],
        [one for piece in pieces for one in piece.raw],
    )


@dataclass(frozen=True, slots=True)
class JoinedSeries:
    """Series with samples in a range. starts: int64 (s + 1,), series i has samples [starts[i], starts[i + 1]) of ts_ms
    and values. orders: only with `partial`, else None."""

    series_ids: NDArray[np.uint64]
    canonical: Sequence[bytes]
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64] | None = None


def joined_series(
    parts: Sequence[PartitionAnswer], start_ms: int, end_ms: int, admit: Admit = lambda size: None
) -> JoinedSeries:
    """The samples in [start_ms, end_ms) of whole partitions, in their order; series without samples are left out.

    admit: called with the bytes of the samples in columns before they are decoded. Raises CorruptData for parts that
    contradict each other.
    """
    blocks, ids, canonical = [], [], []
    for part in parts:
        if part.series is not None:
            blocks.append(part.series)
            ids.append(part.series.series_ids)
            canonical += part.series.canonical()
    samples = _samples(parts, blocks, start_ms, end_ms, admit)
    # A matching series without samples in the range is not in the result, as in Prometheus.
    kept = np.flatnonzero(samples.counts)
    starts = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(samples.counts[kept], out=starts[1:])
    return JoinedSeries(
        flat(ids, np.uint64)[kept],
        canonical if len(kept) == len(canonical) else [canonical[index] for index in kept.tolist()],
        starts,
        samples.ts_ms,
        samples.values,
        samples.orders,
    )


def _samples(
    parts: Sequence[PartitionAnswer], blocks: Sequence[AnswerSeries], start_ms: int, end_ms: int, admit: Admit
) -> RawResult:
    raw, columns = [], []
    for part in parts:
        if part.raw:
            raw.append(part.partition)
        if part.columns or part.overlay:
            columns.append(part.partition)
    if raw and columns:
        raise malformed(f"partition {raw[0]} came as RAW, partition {columns[0]} as COLUMNS")
    if not columns:
        return _concatenated([raw_of(part.raw, len(block)) for part, block in zip(parts, blocks, strict=True)])
    # Imported here because readers of RAW need neither this module nor the library of kernels.
    from tsdb.answer.columns import PartitionColumns, decode_partitions

    framed = [
        PartitionColumns(len(block.series_ids), part.columns, part.overlay)
        for part, block in zip(parts, blocks, strict=True)
    ]
    return RawResult(*decode_partitions(framed, start_ms, end_ms, admit))


def raw_of(pieces: Sequence[RawResult], series: int) -> RawResult:
    """The samples of one partition with `series` series. A series may continue in the next piece.

    Raises CorruptData (answer_malformed) for pieces that overlap.
    """
    if len(pieces) == 1 and len(pieces[0].counts) == series and not pieces[0].first_series:
        return pieces[0]
    counts, reached = np.zeros(series, np.uint32), 0
    for piece in pieces:
        first, last = piece.first_series, piece.first_series + len(piece.counts)
        # A series may continue in the next piece, so a piece begins at the last series of the previous one or later.
        if last > series or first < reached:
            raise malformed(f"samples of series [{first}, {last}) after {reached}; there are {series}")
        reached = max(last - 1, reached)
        counts[first:last] += piece.counts
    orders = [piece.orders for piece in pieces if piece.orders is not None]
    if orders and len(orders) != len(pieces):
        raise malformed("orders in some frames only")
    return RawResult(
        counts,
        flat([piece.ts_ms for piece in pieces], np.int64),
        flat([piece.values for piece in pieces], np.float64),
        flat(orders, np.int64) if orders else None,
    )


def _concatenated(parts: Sequence[RawResult]) -> RawResult:
    orders = [part.orders for part in parts if part.orders is not None]
    if orders and sum(map(len, orders)) != sum(part.samples for part in parts):
        raise malformed("orders of some partitions only")
    return RawResult(
        flat([part.counts for part in parts], np.uint32),
        flat([part.ts_ms for part in parts], np.int64),
        flat([part.values for part in parts], np.float64),
        flat(orders, np.int64) if orders else None,
    )


def flat(parts: Sequence[Any], dtype: Any) -> Any:
    """The concatenation; a single array is not copied."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype)
