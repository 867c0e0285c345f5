"""Queries in PromQL: builds the request, and decodes the result to arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import malformed
from tsdb.answer.spec import ReadOptions
from tsdb.client.arguments import Step, Time, arguments_of, ms_of, step_ms_of
from tsdb.client.call import ClientCall, Method
from tsdb.client.histogram import Histogram, histograms_of
from tsdb.client.options import wire_options
from tsdb.client.tables import samples_arrow, samples_pandas
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.errors import InvalidRequest, Unavailable
from tsdb.model.labels import parse_labels
from tsdb.v1 import reader_pb2
from tsdb.wire.fields import F64, I64, U32, split_labels, unpack
from tsdb.wire.histograms import decode_histograms

if TYPE_CHECKING:
    import pandas
    import pyarrow

Kind = Literal["vector", "ranges", "scalar", "text"]
_KINDS: dict[int, Kind] = {
    reader_pb2.VECTOR: "vector",
    reader_pb2.RANGES: "ranges",
    reader_pb2.SCALAR: "scalar",
    reader_pb2.TEXT: "text",
}


class QueryKeywords(TypedDict, total=False):
    """Keyword arguments of `query` and `query_range`."""

    lookback_ms: int
    options: ReadOptions | None


@dataclass(frozen=True, slots=True, repr=False)
class QueryResult:
    """The result of a PromQL query, its series in the order of the result.

    kind: `vector`: series with values at steps; `ranges`: an instant query of a range; `scalar`: one series without
    labels; `text`: `text` alone. canonical: labels of each series (tsdb.model.labels). starts: int64 (series + 1,),
    series i has samples [starts[i], starts[i + 1]) of ts_ms, int64, and values, float64. times_ms: int64 (steps,), of
    the query; of an instant query its one time. warnings, infos: texts with their position in the query. details: the
    native histograms among the values, None without any; the value of a histogram is its sum.
    """

    kind: Kind
    canonical: Sequence[bytes]
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    times_ms: NDArray[np.int64]
    text: str
    warnings: Sequence[str]
    infos: Sequence[str]
    details: SampleDetails | None = None

    def __repr__(self) -> str:
        return f"QueryResult({self.kind}, {len(self)} series, {len(self.values)} samples)"

    def __len__(self) -> int:
        return len(self.canonical)

    def __iter__(self) -> Iterator[tuple[dict[str, str], NDArray[np.int64], NDArray[np.float64]]]:
        """(labels, ts_ms, values) of each series."""
        for index, canonical in enumerate(self.canonical):
            span = slice(int(self.starts[index]), int(self.starts[index + 1]))
            yield dict(parse_labels(canonical)), self.ts_ms[span], self.values[span]

    def histograms(self, index: int) -> list[Histogram | None]:
        """The native histogram of each value of one series, None for a number."""
        return histograms_of(self.details, int(self.starts[index]), int(self.starts[index + 1]))

    def grid(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """(values, present), float64 and bool (series, steps). A value that is not present is NaN.

        Raises InvalidRequest (no_steps) for ranges and text.
        """
        if self.kind in ("ranges", "text"):
            raise InvalidRequest(f"a result of kind {self.kind} has no steps", reason="no_steps")
        shape = len(self), len(self.times_ms)
        values, present = np.full(shape, np.nan), np.zeros(shape, np.bool_)
        rows = np.repeat(np.arange(len(self)), np.diff(self.starts))
        steps = np.searchsorted(self.times_ms, self.ts_ms)
        values[rows, steps], present[rows, steps] = self.values, True
        return values, present

    def to_arrow(self) -> pyarrow.Table:
        """One row for each value, as SelectResult.to_arrow has them."""
        return samples_arrow(self.canonical, self.starts, self.ts_ms, self.values, self.details)

    def to_pandas(self) -> pandas.DataFrame:
        """One row for each value, as SelectResult.to_pandas has them."""
        return samples_pandas(self.canonical, self.starts, self.ts_ms, self.values, self.details)


@arguments_of("query")
def query(
    text: str, at_ms: Time, *, lookback_ms: int = 0, options: ReadOptions | None = None
) -> ClientCall[QueryResult]:
    """The value of a PromQL expression at one time. lookback_ms: how old a sample may be; 0: 5 minutes.

    options: allow_stale, allow_holes and max_lag_ms alone.
    """
    at = ms_of("at_ms", at_ms)
    return _call(text, (at, at, 0), lookback_ms, options)


@arguments_of("query_range")
def query_range(
    text: str,
    start_ms: Time,
    end_ms: Time,
    step_ms: Step,
    *,
    lookback_ms: int = 0,
    options: ReadOptions | None = None,
) -> ClientCall[QueryResult]:
    """The values of a PromQL expression at start_ms, start_ms + step_ms, ... up to end_ms. Otherwise the same as
    `query`."""
    step = step_ms_of("step_ms", step_ms)
    if step <= 0:
        raise InvalidRequest(f"step_ms is {step}; it must be above 0", reason="bad_range")
    return _call(text, (ms_of("start_ms", start_ms), ms_of("end_ms", end_ms), step), lookback_ms, options)


def _call(
    text: str, steps: tuple[int, int, int], lookback_ms: int, options: ReadOptions | None
) -> ClientCall[QueryResult]:
    start_ms, end_ms, step_ms = steps
    request = reader_pb2.QueryRequest(
        query=text,
        start_ms=start_ms,
        end_ms=end_ms,
        step_ms=step_ms,
        lookback_ms=lookback_ms,
        options=wire_options(options),
        histograms=True,
    )
    return ClientCall(Method.QUERY, request, _Answer)


class _Answer:
    def __init__(self) -> None:
        self._header: reader_pb2.QueryHeader | None = None
        self._frames: list[reader_pb2.QueryFrame] = []
        self._complete = False

    def add(self, message: Any) -> None:
        if message.HasField("header"):
            self._header = message.header
        if message.HasField("frame"):
            self._frames.append(message.frame)
        self._complete = self._complete or message.complete

    def finish(self) -> QueryResult:
        header = self._header
        if header is None or not self._complete:
            raise Unavailable("the answer ended before its end mark: it was cut off", reason="answer_cut")
        times_ms = header.start_ms + np.arange(header.steps, dtype=np.int64) * header.step_ms
        parts = [_decoded(frame, times_ms, is_ranges=header.kind == reader_pb2.RANGES) for frame in self._frames]
        canonical = [labels for part in parts for labels in part[0]]
        if len(canonical) != header.series:
            raise malformed(f"{len(canonical)} series came, the header has {header.series}")
        counts = np.concatenate([np.zeros(1, np.int64), *(part[1] for part in parts)])
        return QueryResult(
            kind=_KINDS[header.kind],
            canonical=canonical,
            starts=np.cumsum(counts, dtype=np.int64),
            ts_ms=np.concatenate([np.empty(0, np.int64), *(part[2] for part in parts)]),
            values=np.concatenate([np.empty(0), *(part[3] for part in parts)]),
            times_ms=times_ms,
            text=header.text,
            warnings=list(header.warnings),
            infos=list(header.infos),
            details=joined_details([(len(part[3]), part[4]) for part in parts]),
        )


_Part = tuple[list[bytes], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], SampleDetails | None]


def _decoded(frame: reader_pb2.QueryFrame, times_ms: NDArray[np.int64], *, is_ranges: bool) -> _Part:
    """(labels, counts, ts_ms, values, details) of the series of one frame."""
    lengths = unpack(frame.label_lengths, U32, "label_lengths")
    labels = split_labels(frame.labels, lengths)
    counts = unpack(frame.counts, U32, "counts", len(labels)).astype(np.int64)
    values = unpack(frame.values, F64, "values", int(counts.sum()))
    details = _details(frame, values) if frame.HasField("histograms") else None
    if is_ranges:
        return labels, counts, unpack(frame.ts_ms, I64, "ts_ms", len(values)), values, details
    cells = len(labels) * len(times_ms)
    if len(frame.present) != (cells + 7) // 8:
        raise malformed(f"present has {len(frame.present)} bytes, want {(cells + 7) // 8}")
    bits = np.unpackbits(np.frombuffer(frame.present, np.uint8), count=cells, bitorder="little")
    present = bits.reshape(len(labels), len(times_ms)).astype(np.bool_)
    if not (present.sum(axis=1) == counts).all():
        raise malformed("counts do not fit the steps that are present")
    return labels, counts, np.broadcast_to(times_ms, present.shape)[present], values, details


def _details(frame: reader_pb2.QueryFrame, values: NDArray[np.float64]) -> SampleDetails:
    try:
        found = decode_histograms(frame.histograms, values)
    except ValueError as error:
        raise malformed(str(error)) from None
    for index, refused in found.errors.items():
        raise malformed(f"histogram {index}: {refused.message}")
    return SampleDetails(None, found.columns, found.histogram_of)
