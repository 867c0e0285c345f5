"""The Reader service of a store: has one thin method for each call of proto/tsdb/v1/reader.proto."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import grpc

from tsdb.head.head import Head
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.model.placement import DEFAULT_PLACEMENT_LABELS
from tsdb.ops.grpc.slots import waiting
from tsdb.ops.metrics import counter, histogram
from tsdb.reader.answer_bytes import texts_bytes
from tsdb.reader.cardinality import cardinality_spec, count
from tsdb.reader.experiment import with_experiment
from tsdb.reader.limits import LABEL_VALUES_MAX, WATCHES_MAX, SelectLimits
from tsdb.reader.read_call import ReadCall, ReadCalls
from tsdb.reader.request import (
    LabelsSpec,
    labels_spec,
    matchers_of,
    partitions_of,
    select_spec,
    series_spec,
    tokens_of,
)
from tsdb.store import select, series
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition, StorePartitionStatus
from tsdb.store.response_header import warnings
from tsdb.store.tolerance import tolerance_of
from tsdb.store.watch import Watch
from tsdb.v1 import reader_pb2, reader_pb2_grpc

AFTER_WAIT_MAX_S = 30.0  # Bounds the wait of a caller without a deadline.
ANSWER_SHARE = 0.05  # Share of a caller's remaining time that is reserved for sending the answer.

series_total = counter("tsdb_store_selected_series_total", "Series in Select answers.")
samples_total = counter("tsdb_store_selected_samples_total", "Samples in Select answers; whole columns count in full.")
select_seconds = histogram(
    "tsdb_store_select_gather_seconds", "Time to gather a Select answer, before its first frame."
)
watches_refused_total = counter("tsdb_store_watches_refused_total", "Watch streams refused because too many are open.")


class ReaderService(reader_pb2_grpc.ReaderServicer):
    """Answers reads from the heads of `partitions`. Called from the server's threads. experiment: empty: production."""

    def __init__(
        self,
        topic_id: str,
        partitions: Mapping[int, Partition],
        applied: AppliedSignal,
        limits: SelectLimits,
        calls: ReadCalls | None = None,
        placement_labels: Sequence[str] = DEFAULT_PLACEMENT_LABELS,
        experiment: str = "",
        max_lag_ms: int | None = None,
    ) -> None:
        """max_lag_ms: reads without their own bound are refused above this lag."""
        self._topic_id = topic_id
        self._max_lag_ms = max_lag_ms
        self._placement_labels = placement_labels
        self._experiment = experiment
        self._partitions = partitions
        self._applied = applied
        self._limits = limits
        self._calls = calls or ReadCalls()
        self._memory = select.ReadMemory()
        self._watches = threading.BoundedSemaphore(WATCHES_MAX)

    def Select(  # type: ignore[override]  # Its messages are encoded already.
        self, request: reader_pb2.SelectRequest, context: grpc.ServicerContext
    ) -> Generator[bytes]:
        query = select_spec(request)
        limits = self._limits.lowered(request.series_max, request.samples_max, request.bytes_max)
        tolerance = tolerance_of(request.options, self._max_lag_ms)
        with self._calls.of(context) as call:
            partitions = self._ready_partitions(request.options, call)
            with select_seconds.time():
                answer = select.gather(partitions, query, tolerance, limits, self._memory, call)
            series_total.inc(answer.body.series)
            samples_total.inc(answer.body.samples)
            yield from select.messages(answer)

    def Series(
        self, request: reader_pb2.SeriesRequest, context: grpc.ServicerContext
    ) -> Iterator[reader_pb2.SeriesResponse]:
        query = series_spec(request)
        limits = self._limits.lowered(request.series_max, 0, 0)
        with self._calls.of(context) as call:
            partitions = self._ready_partitions(request.options, call)
            found = series.find(partitions, query, tolerance_of(request.options, self._max_lag_ms), limits, call)
            yield from series.frames(found, query, call)

    def LabelNames(
        self, request: reader_pb2.LabelNamesRequest, context: grpc.ServicerContext
    ) -> reader_pb2.LabelNamesResponse:
        query = labels_spec(request)
        names: set[str] = set()
        with self._calls.of(context) as call:
            reads = self._label_reads(request.options, call, query.start_ms, query.end_ms)
            for read in reads:
                call.check_going()
                names.update(read.head.index.label_names(query.matchers, call.check_going))
                call.hold(texts_bytes(names))
            call.release_when_sent()
        return reader_pb2.LabelNamesResponse(header=_header(reads, query, request.options), names=sorted(names))

    def LabelValues(
        self, request: reader_pb2.LabelValuesRequest, context: grpc.ServicerContext
    ) -> reader_pb2.LabelValuesResponse:
        if not request.name:
            raise InvalidRequest("label name is empty", reason="bad_label")
        query = labels_spec(request)
        limit = min(LABEL_VALUES_MAX, request.values_max or LABEL_VALUES_MAX)
        values: set[str] = set()
        with self._calls.of(context) as call:
            reads = self._label_reads(request.options, call, query.start_ms, query.end_ms)
            for read in reads:
                call.check_going()
                index = read.head.index
                values.update(
                    index.label_values(request.name, query.matchers, limit=limit, check_going=call.check_going)
                )
                if len(values) > limit:
                    raise Overloaded(
                        f"label {request.name!r} has over {limit} values; add matchers",
                        reason="values_limit",
                        limit=limit,
                    )
                call.hold(texts_bytes(values))
            call.release_when_sent()
        return reader_pb2.LabelValuesResponse(header=_header(reads, query, request.options), values=sorted(values))

    def Cardinality(
        self, request: reader_pb2.CardinalityRequest, context: grpc.ServicerContext
    ) -> reader_pb2.CardinalityResponse:
        query = cardinality_spec(request)
        with self._calls.of(context) as call:
            reads = self._label_reads(request.options, call, None, None)
            response = count([read.head.index for read in reads], query, self._placement_labels, call)
            response.header.CopyFrom(_states([read.status() for read in reads], None))
            call.release_when_sent()
        return response

    def Query(
        self, request: reader_pb2.QueryRequest, context: grpc.ServicerContext
    ) -> Iterator[reader_pb2.QueryResponse]:
        raise _no_promql()

    def Queries(self, request: reader_pb2.QueriesRequest, context: grpc.ServicerContext) -> reader_pb2.QueriesResponse:
        raise _no_promql()

    def CancelQuery(
        self, request: reader_pb2.CancelQueryRequest, context: grpc.ServicerContext
    ) -> reader_pb2.CancelQueryResponse:
        raise _no_promql()

    def Coverage(
        self, request: reader_pb2.CoverageRequest, context: grpc.ServicerContext
    ) -> reader_pb2.CoverageResponse:
        states = [partition.status().to_proto() for partition in self._partitions.values()]
        return with_experiment(reader_pb2.CoverageResponse(partitions=states), self._experiment)

    def Watch(
        self, request: reader_pb2.WatchRequest, context: grpc.ServicerContext
    ) -> Iterator[reader_pb2.WatchResponse]:
        wanted = {p: self._partitions[p] for p in partitions_of(request.partitions, self._partitions)}
        resume = tokens_of(getattr(request, "from"), self._topic_id, wanted)
        watch = Watch(wanted, matchers_of(request.matchers), resume)
        if not self._watches.acquire(blocking=False):
            watches_refused_total.inc()
            raise Overloaded(
                f"{WATCHES_MAX} watches are open, which is the limit",
                reason="watches_limit",
                retry_after_s=5.0,
                limit=WATCHES_MAX,
            )
        try:
            yield from watch.responses(self._applied, context, self._calls)
        finally:
            self._watches.release()

    def _ready_partitions(self, options: reader_pb2.ReadOptions, call: ReadCall) -> list[Partition]:
        """The partitions to answer from, after they have applied the records that `after` names."""
        numbers = partitions_of(options.partitions, self._partitions)
        tokens = tokens_of(options.after, self._topic_id, self._partitions)
        if tokens and not self._applied.has(self._partitions, tokens):
            # A caller that leaves ends the wait: the notification makes `wait_for` check the call.
            call.add_callback(self._applied.notify)
            with waiting():
                self._applied.wait_for(self._partitions, tokens, _wait_s(call), call.check_going)
        return [self._partitions[number] for number in numbers]

    def _label_reads(
        self, options: reader_pb2.ReadOptions, call: ReadCall, start_ms: int | None, end_ms: int | None
    ) -> list[_LabelRead]:
        tolerance = tolerance_of(options, self._max_lag_ms)
        reads = []
        for partition in self._ready_partitions(options, call):
            head, snapshot = partition.evaluate()
            tolerance.check_fresh(snapshot, end_ms)
            reads.append(_LabelRead(head, snapshot.status(head.state(), head.sizes())))
            _check_coverage(reads[-1].before, start_ms)
        return reads


@dataclass(frozen=True, slots=True)
class _LabelRead:
    """A partition whose labels are read, and its status before the read."""

    head: Head
    before: StorePartitionStatus

    def status(self) -> StorePartitionStatus:
        """The status of the read, from its beginning until now."""
        return replace(self.before, state=self.before.state.through(self.head.state()))


def _check_coverage(status: StorePartitionStatus, start_ms: int | None) -> None:
    if start_ms is not None:
        status.check_coverage(start_ms)


def _header(reads: Iterable[_LabelRead], query: LabelsSpec, options: reader_pb2.ReadOptions) -> reader_pb2.SelectHeader:
    """Raises OutOfCoverage and HoleInRange, where the request has a start."""
    statuses = [read.status() for read in reads]
    for status in statuses:
        _check_coverage(status, query.start_ms)
        if query.start_ms is not None:
            tolerance_of(options).check_holes(status, query.start_ms, query.end_ms)
    return _states(statuses, query.end_ms)


def _states(statuses: Sequence[StorePartitionStatus], end_ms: int | None) -> reader_pb2.SelectHeader:
    return reader_pb2.SelectHeader(
        partitions=[status.to_proto() for status in statuses], warnings=warnings(statuses, end_ms)
    )


def _wait_s(call: ReadCall) -> float:
    """How long a read may wait for records: less than its deadline, so that time remains to return the error."""
    return min(call.time_remaining() * (1 - ANSWER_SHARE), AFTER_WAIT_MAX_S)


def _no_promql() -> InvalidRequest:
    return InvalidRequest(
        "a store does not evaluate PromQL: ask a querier or a standalone process, or select samples from here",
        reason="no_promql",
    )
