"""Select: the request, and the result joined from the frames of the answer.

An answer is a header, a series block and data for each partition, and a trailer; one message holds as many frames as
fit. An answer without a trailer was cut off and is an error, never a short result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from tsdb.client.arguments import arguments_of
from tsdb.client.call import Call, Method
from tsdb.client.options import ReadOptions, Selector, wire_matchers, wire_options
from tsdb.client.result import SelectResult
from tsdb.client.wire import F64, I64, U32, U64, block_labels, malformed, unpack
from tsdb.model.errors import InvalidRequest, Unavailable
from tsdb.v1 import common_pb2, reader_pb2

AGGREGATIONS = tuple(name.lower() for name, _ in reader_pb2.Aggregation.items() if name != "NONE")
ENCODINGS = tuple(name.lower() for name, _ in reader_pb2.Encoding.items())


class SelectKeywords(TypedDict, total=False):
    """Keywords of a client's `select`: the optional fields of SelectQuery."""

    series_ids: Sequence[int] | NDArray[np.uint64] | None
    step_ms: int
    agg: str | None
    last_n: int
    encoding: str
    labels: bool
    partial: bool
    downsampled: bool
    series_max: int
    samples_max: int
    options: ReadOptions | None


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """A select by either `selector` (text or matchers) or `series_ids`.

    Range [start_ms, end_ms), ms since epoch UTC. step_ms with agg (one of AGGREGATIONS): one sample for each step
    [start_ms + k * step_ms, + step_ms), at the start of the step. last_n: only the newest n samples of each series.
    encoding: "raw", or "columns", which is several times smaller on the wire and decoded by compiled kernels.
    labels=False leaves labels out. partial: also samples below coverage, with orders; for queriers. downsampled: steps
    in the past may use derived series, which date from the last run of `tsdb spark downsample`.
    """

    selector: Selector | None
    start_ms: int
    end_ms: int
    series_ids: Sequence[int] | NDArray[np.uint64] | None = None
    step_ms: int = 0
    agg: str | None = None
    last_n: int = 0
    encoding: str = "raw"
    labels: bool = True
    partial: bool = False
    downsampled: bool = False
    series_max: int = 0
    samples_max: int = 0
    options: ReadOptions | None = None

    @arguments_of("select")
    def call(self) -> Call[SelectResult]:
        """Build the call. Raises InvalidRequest for values that cannot be encoded; the server checks the others."""
        if (self.selector is None) == (self.series_ids is None):
            raise InvalidRequest("give either a selector or series_ids", reason="bad_selector")
        request = reader_pb2.SelectRequest(
            matchers=() if self.selector is None else wire_matchers(self.selector),
            series_ids=b"" if self.series_ids is None else np.asarray(self.series_ids, U64).tobytes(),
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            step_ms=self.step_ms,
            aggregation=_aggregation(self.agg),
            last_n=self.last_n,
            encoding=_encoding(self.encoding),
            options=wire_options(self.options),
            omit_labels=not self.labels,
            partial=self.partial,
            downsampled=self.downsampled,
            series_max=self.series_max,
            samples_max=self.samples_max,
        )
        return Call(Method.SELECT, request, lambda: SelectAnswer(self.start_ms, self.end_ms))


def _aggregation(name: str | None) -> reader_pb2.Aggregation.ValueType:
    if name is None:
        return reader_pb2.NONE
    if name not in AGGREGATIONS:
        raise InvalidRequest(f"agg {name!r} is unknown; known: {', '.join(AGGREGATIONS)}", reason="bad_step")
    return reader_pb2.Aggregation.Value(name.upper())


def _encoding(name: str) -> reader_pb2.Encoding.ValueType:
    if name not in ENCODINGS:
        raise InvalidRequest(f"encoding {name!r} is unknown; known: {', '.join(ENCODINGS)}", reason="bad_encoding")
    return reader_pb2.Encoding.Value(name.upper())


@dataclass(slots=True)
class _Samples:
    """Samples of a partition: the number of samples of each series, and the flat arrays."""

    counts: NDArray[np.uint32]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64] | None = None


@dataclass(slots=True)
class _PartitionFrames:
    """Frames of one partition, in order of arrival."""

    block: common_pb2.SeriesBlock
    raw: list[reader_pb2.RawFrame] = field(default_factory=list)
    overlay: list[reader_pb2.RawFrame] = field(default_factory=list)
    columns: list[reader_pb2.ColumnsFrame] = field(default_factory=list)


class SelectAnswer:
    """Reader of one Select answer: collects the frames, checks their order, and joins them in `finish`."""

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self._range = start_ms, end_ms
        self._header: reader_pb2.SelectHeader | None = None
        self._parts: dict[int, _PartitionFrames] = {}
        self._trailer: reader_pb2.SelectTrailer | None = None

    def add(self, message: Any) -> None:
        if self._trailer is not None:
            raise malformed("a frame after the trailer")
        if message.HasField("header"):
            self._header = message.header
        if self._header is None:
            raise malformed("series or data before the header")
        for block in message.series:
            self._parts[block.partition] = _PartitionFrames(block)
        for raw in message.raw:
            part = self._part(raw.partition)
            (part.overlay if raw.overlay else part.raw).append(raw)
        for columns in message.columns:
            self._part(columns.partition).columns.append(columns)
        if message.HasField("trailer"):
            self._trailer = message.trailer

    def _part(self, partition: int) -> _PartitionFrames:
        if partition not in self._parts:
            raise malformed(f"data of partition {partition} without its series before it")
        return self._parts[partition]

    def finish(self) -> SelectResult:
        """Raises Unavailable (answer_cut) without a trailer, CorruptData for frames that contradict each other."""
        if self._trailer is None or self._header is None:
            raise Unavailable("the answer ended before its trailer: it was cut off", reason="answer_cut")
        self._check(self._trailer)
        parts = self._parts.values()
        ids = [unpack(part.block.series_ids, U64, "series_ids") for part in parts]
        labels = [block_labels(part.block, len(i)) for part, i in zip(parts, ids, strict=True)]
        samples = [_samples(part, len(i), *self._range) for part, i in zip(parts, ids, strict=True)]
        return _join(ids, labels, samples, list(self._header.partitions))

    def _check(self, trailer: reader_pb2.SelectTrailer) -> None:
        series = sum(len(part.block.series_ids) // U64.itemsize for part in self._parts.values())
        samples = sum(_claimed_samples(part) for part in self._parts.values())
        if (series, samples) != (trailer.series, trailer.samples):
            raise malformed(
                f"{series} series and {samples} samples came, the trailer says {trailer.series} and {trailer.samples}"
            )


def _claimed_samples(part: _PartitionFrames) -> int:
    total = sum(len(frame.ts_ms) // I64.itemsize for frame in (*part.raw, *part.overlay))
    for frame in part.columns:
        on_axis = unpack(frame.axis_counts, U32, "axis_counts")
        axes = unpack(frame.axis_index, U32, "axis_index")
        if len(axes) and int(axes.max()) >= len(on_axis):
            raise malformed(f"axis {int(axes.max())} of {len(on_axis)}")
        total += int(on_axis[axes].sum(dtype=np.int64))
    return total


def _samples(part: _PartitionFrames, series: int, start_ms: int, end_ms: int) -> _Samples:
    if not part.columns and not part.overlay:
        return _raw_samples(part.raw, series)
    if part.raw:
        raise malformed(f"partition {part.block.partition} mixes RAW and COLUMNS")
    # Imported here because it loads numba, which takes half a second. Readers of RAW do not need it.
    from tsdb.client.columns import decode_partition

    return _Samples(*decode_partition(series, part.columns, part.overlay, start_ms, end_ms))


def _raw_samples(frames: list[reader_pb2.RawFrame], series: int) -> _Samples:
    counts = np.zeros(series, np.uint32)
    ts_ms: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    orders: list[NDArray[np.int64]] = []
    reached = 0
    for frame in frames:
        found = unpack(frame.counts, U32, "counts")
        last = frame.first_series + len(found)
        # A series may continue in the next frame, so a frame begins at the last series of the previous one or later.
        if last > series or frame.first_series < reached:
            raise malformed(f"frame of series [{frame.first_series}, {last}) after {reached}; there are {series}")
        reached = max(last - 1, reached)
        counts[frame.first_series : last] += found
        total = int(found.sum(dtype=np.int64))
        ts_ms.append(unpack(frame.ts_ms, I64, "ts_ms", total))
        values.append(unpack(frame.values, F64, "values", total))
        if frame.orders:
            orders.append(unpack(frame.orders, I64, "orders", total))
    if orders and len(orders) != len(frames):
        raise malformed("orders in some frames only")
    joined_orders = _flat(orders, np.int64) if orders else None
    return _Samples(counts, _flat(ts_ms, np.int64), _flat(values, np.float64), joined_orders)


def _join(
    ids: list[NDArray[np.uint64]],
    labels: list[list[bytes]],
    samples: list[_Samples],
    partitions: list[common_pb2.PartitionState],
) -> SelectResult:
    counts = _flat([part.counts for part in samples], np.uint32)
    # A matching series without samples in the range is not in the result, as in Prometheus.
    kept = np.flatnonzero(counts)
    canonical = [label for part in labels for label in part]
    starts = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(counts[kept], out=starts[1:])
    orders = [part.orders for part in samples if part.orders is not None]
    if orders and sum(map(len, orders)) != int(starts[-1]):
        raise malformed("orders of some partitions only")
    return SelectResult(
        series_ids=_flat(ids, np.uint64)[kept],
        canonical=canonical if len(kept) == len(canonical) else [canonical[index] for index in kept.tolist()],
        starts=starts,
        ts_ms=_flat([part.ts_ms for part in samples], np.int64),
        values=_flat([part.values for part in samples], np.float64),
        orders=_flat(orders, np.int64) if orders else None,
        partitions=partitions,
    )


def _flat(parts: list[Any], dtype: Any) -> Any:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype)
