"""Select: the request, and the result joined from the frames of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from tsdb.client.answer.frames import AnswerFrames, PartitionFrames
from tsdb.client.arguments import arguments_of
from tsdb.client.call import ClientCall, Method
from tsdb.client.options import ReadOptions, Selector, wire_matchers, wire_options
from tsdb.client.result import SelectResult
from tsdb.client.wire import F64, I64, U32, U64, block_labels, malformed, unpack
from tsdb.model.errors import InvalidRequest
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
    def call(self) -> ClientCall[SelectResult]:
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
        return ClientCall(Method.SELECT, request, lambda: SelectAnswer(self.start_ms, self.end_ms))


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
    """Number of samples of each series, and the flat arrays of all samples."""

    counts: NDArray[np.uint32]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64] | None = None


class SelectAnswer:
    """Reader of one Select answer: collects the frames, checks their order, and joins them in `finish`."""

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self._range = start_ms, end_ms
        self._frames = AnswerFrames()

    def add(self, message: Any) -> None:
        self._frames.add(message)

    def finish(self) -> SelectResult:
        """Raises Unavailable (answer_cut) without a trailer, CorruptData for frames that contradict each other."""
        answer = self._frames.finish()
        found = joined_result(answer.parts, answer.states, *self._range)
        return replace(found, warnings=tuple(answer.warnings))


def joined_result(
    parts: Iterable[PartitionFrames],
    states: Iterable[common_pb2.PartitionState],
    start_ms: int,
    end_ms: int,
    admit: Callable[[int], None] = lambda size: None,
) -> SelectResult:
    """The result of the frames of all partitions, which may come from several answers to one request.

    admit: called with the bytes of the decoded samples of a COLUMNS answer before they are allocated; it may raise.
    Raises CorruptData for frames that contradict each other.
    """
    ordered = sorted(parts, key=lambda part: part.block.partition)
    ids = [unpack(part.block.series_ids, U64, "series_ids") for part in ordered]
    labels = [block_labels(part.block, len(i)) for part, i in zip(ordered, ids, strict=True)]
    samples = _samples(ordered, [len(i) for i in ids], start_ms, end_ms, admit)
    return _join(ids, labels, samples, list(states))


def _samples(
    parts: Sequence[PartitionFrames], series: Sequence[int], start_ms: int, end_ms: int, admit: Callable[[int], None]
) -> _Samples:
    columns = any(part.columns or part.overlay for part in parts)
    if not columns:
        return _joined_samples([_raw_samples(part.raw, count) for part, count in zip(parts, series, strict=True)])
    for part in parts:
        if part.raw:
            raise malformed(f"partition {part.block.partition} mixes RAW and COLUMNS")
    # Imported here because it loads numba, which takes half a second. Readers of RAW do not need it.
    from tsdb.client.answer.columns import PartitionColumns, decode_partitions

    framed = [PartitionColumns(count, part.columns, part.overlay) for part, count in zip(parts, series, strict=True)]
    return _Samples(*decode_partitions(framed, start_ms, end_ms, admit))


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


def _joined_samples(parts: Sequence[_Samples]) -> _Samples:
    orders = [part.orders for part in parts if part.orders is not None]
    samples = sum(len(part.ts_ms) for part in parts)
    if orders and sum(map(len, orders)) != samples:
        raise malformed("orders of some partitions only")
    return _Samples(
        _flat([part.counts for part in parts], np.uint32),
        _flat([part.ts_ms for part in parts], np.int64),
        _flat([part.values for part in parts], np.float64),
        _flat(orders, np.int64) if orders else None,
    )


def _join(
    ids: list[NDArray[np.uint64]],
    labels: list[list[bytes]],
    samples: _Samples,
    partitions: list[common_pb2.PartitionState],
) -> SelectResult:
    # A matching series without samples in the range is not in the result, as in Prometheus.
    kept = np.flatnonzero(samples.counts)
    canonical = [label for part in labels for label in part]
    starts = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(samples.counts[kept], out=starts[1:])
    return SelectResult(
        series_ids=_flat(ids, np.uint64)[kept],
        canonical=canonical if len(kept) == len(canonical) else [canonical[index] for index in kept.tolist()],
        starts=starts,
        ts_ms=samples.ts_ms,
        values=samples.values,
        orders=samples.orders,
        partitions=partitions,
    )


def _flat(parts: list[Any], dtype: Any) -> Any:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype)
