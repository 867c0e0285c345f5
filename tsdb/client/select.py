"""Select: the request, and the result joined from the frames of the answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import Answer, JoinedSeries, PartitionAnswer, joined_parts, raw_series
from tsdb.answer.spec import ReadOptions
from tsdb.client.arguments import Time, arguments_of, ms_of
from tsdb.client.call import ClientCall, Method
from tsdb.client.options import Selector, wire_matchers, wire_options
from tsdb.client.result import SelectResult
from tsdb.model.errors import InvalidRequest
from tsdb.v1 import reader_pb2
from tsdb.wire.fields import U64
from tsdb.wire.select import AnswerDecoder

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

    Range [start_ms, end_ms), ms since epoch UTC. step_ms with agg (one of AGGREGATIONS): one
    sample for each step [start_ms + k * step_ms, + step_ms), at the start of the step. last_n: only the newest n
    samples of each series.
    encoding: "raw", or "columns", which is several times smaller on the wire and decoded by compiled kernels.
    labels=False leaves labels out. partial: also the samples below coverage, with their orders; queriers need them.
    downsampled: steps in the past may use derived series, which date from the last run of `tsdb spark downsample`.
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


@arguments_of("select")
def select(
    selector: Selector | None, start_ms: Time, end_ms: Time, **query: Unpack[SelectKeywords]
) -> ClientCall[SelectResult]:
    """SelectQuery, with a range of times of any type."""
    return SelectQuery(selector, ms_of("start_ms", start_ms), ms_of("end_ms", end_ms), **query).call()


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
    """Reader of one Select answer: checks its messages, joins them in `finish`. partitions: only these; None: all."""

    def __init__(self, start_ms: int, end_ms: int, partitions: Collection[int] | None = None) -> None:
        self._range = start_ms, end_ms
        self._partitions = partitions
        self._decoder = AnswerDecoder()
        self._answers: list[Answer] = []
        self._header = reader_pb2.SelectHeader()

    def add(self, message: Any) -> None:
        self._answers.append(self._decoder.add(message))
        if message.HasField("header"):
            self._header = message.header

    def finish(self) -> SelectResult:
        """Raises Unavailable (answer_cut) without a trailer, CorruptData for messages that contradict each other."""
        self._decoder.finish()
        parts = [part for part in joined_parts(self._answers) if self._is_wanted(part.partition)]
        found = self._joined(parts)
        return SelectResult(
            series_ids=found.series_ids,
            canonical=found.canonical,
            starts=found.starts,
            ts_ms=found.ts_ms,
            values=found.values,
            orders=found.orders,
            details=found.details,
            partitions=[state for state in self._header.partitions if self._is_wanted(state.partition)],
            warnings=tuple(self._header.warnings),
        )

    def _joined(self, parts: Sequence[PartitionAnswer]) -> JoinedSeries:
        if not any(part.columns or part.overlay for part in parts):
            return raw_series(parts)
        # Imported here because readers of RAW need no library of kernels.
        from tsdb.answer.columns import joined_series

        return joined_series(parts, *self._range)

    def _is_wanted(self, partition: int) -> bool:
        return self._partitions is None or partition in self._partitions
