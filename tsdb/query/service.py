"""The Reader service of a querier: has one thin method for each call of proto/tsdb/v1/reader.proto."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc

from tsdb.answer.answer import LabelsAnswer
from tsdb.answer.spec import LabelsSpec, highest_offsets, partitions_of
from tsdb.index.matching import conditions_of
from tsdb.model.errors import Overloaded
from tsdb.ops.metrics import counter
from tsdb.promql.evaluate.query import DEFAULTS, QueryOptions
from tsdb.query.cardinality import CardinalityRead
from tsdb.query.coverage import coverage
from tsdb.query.exemplars import read_exemplars
from tsdb.query.labels import read_labels
from tsdb.query.promql.listed_call import listed_call
from tsdb.query.promql.read import QueryRead, check_query
from tsdb.query.promql.running import RunningQueries
from tsdb.query.select import SelectRead
from tsdb.query.series import SeriesRead
from tsdb.query.shadow.seen import AnswerObserver
from tsdb.query.sources import Sources, partitions_for
from tsdb.query.watch import WatchRead
from tsdb.reader.cardinality import cardinality_spec
from tsdb.reader.read_call import WATCHES_MAX, ReadCalls, SelectLimits, texts_bytes
from tsdb.v1 import reader_pb2, reader_pb2_grpc
from tsdb.wire.exemplars import decode_exemplars_spec, encode_exemplars_answer
from tsdb.wire.select import AnswerEncoder, decode_select
from tsdb.wire.series import decode_labels, decode_series, encode_names, encode_series_answer, encode_values
from tsdb.wire.state import decode_options
from tsdb.wire.watch import decode_watch, encode_watch_answer

watches_refused_total = counter("tsdb_query_watches_refused_total", "Watch streams refused because too many are open.")


class QuerierService(reader_pb2_grpc.ReaderServicer):
    """Answers reads from stores and history. Called from the server's threads.

    running: the queries of the process, those of other services too. seen: sees the answers of Select and Query.
    """

    def __init__(
        self,
        sources: Sources,
        limits: SelectLimits,
        calls: ReadCalls | None = None,
        promql: QueryOptions = DEFAULTS,
        running: RunningQueries | None = None,
        seen: AnswerObserver | None = None,
    ) -> None:
        self._sources = sources
        self._promql = promql
        self._running = running or RunningQueries()
        self._limits = limits
        self._seen = seen
        self._calls = calls or ReadCalls()
        self._encoder = AnswerEncoder(by_field=True)
        self._watches = threading.BoundedSemaphore(WATCHES_MAX)

    def Select(  # type: ignore[override]  # Its messages are encoded already.
        self, request: reader_pb2.SelectRequest, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        spec = decode_select(request)
        partitions = partitions_for(self._sources, spec.options)
        limits = self._limits.lowered(spec.series_max, spec.samples_max, spec.bytes_max)
        with self._calls.of(context) as call:
            answers = SelectRead(self._sources, limits.of(spec), limits, call).answers(partitions)
            messages = self._encoder.messages(answers)
            yield from self._seen.answer("Select", request, context, messages) if self._seen else messages

    def Series(
        self, request: reader_pb2.SeriesRequest, context: grpc.ServicerContext
    ) -> Iterator[reader_pb2.SeriesResponse]:
        spec = decode_series(request)
        partitions = partitions_for(self._sources, spec.options)
        limits = self._limits.lowered(spec.series_max, 0, 0)
        with self._calls.of(context) as call:
            yield from map(encode_series_answer, SeriesRead(self._sources, spec, limits, call).answers(partitions))

    def LabelNames(
        self, request: reader_pb2.LabelNamesRequest, context: grpc.ServicerContext
    ) -> reader_pb2.LabelNamesResponse:
        return encode_names(self._labels(decode_labels(request), context))

    def LabelValues(
        self, request: reader_pb2.LabelValuesRequest, context: grpc.ServicerContext
    ) -> reader_pb2.LabelValuesResponse:
        return encode_values(self._labels(decode_labels(request), context))

    def _labels(self, spec: LabelsSpec, context: grpc.ServicerContext) -> LabelsAnswer:
        with self._calls.of(context) as call:
            answer = read_labels(self._sources, spec, call)
            call.hold(texts_bytes(answer.texts))
            call.release_when_sent()
        return answer

    def Exemplars(
        self, request: reader_pb2.ExemplarsRequest, context: grpc.ServicerContext
    ) -> Iterator[reader_pb2.ExemplarsResponse]:
        spec = decode_exemplars_spec(request)
        partitions = partitions_for(self._sources, spec.options)
        with self._calls.of(context) as call:
            yield from map(encode_exemplars_answer, read_exemplars(self._sources, spec, partitions, call))

    def Cardinality(
        self, request: reader_pb2.CardinalityRequest, context: grpc.ServicerContext
    ) -> reader_pb2.CardinalityResponse:
        query = cardinality_spec(request)
        partitions = partitions_for(self._sources, decode_options(request.options))
        with self._calls.of(context) as call:
            response = CardinalityRead(self._sources, request, query, call).response(partitions)
            call.release_when_sent()
        return response

    def Query(
        self, request: reader_pb2.QueryRequest, context: grpc.ServicerContext
    ) -> Iterator[reader_pb2.QueryResponse]:
        check_query(request)
        with listed_call(self._running, request.query, context) as caller, self._calls.of(caller) as call:
            answer = QueryRead(self._sources, self._limits, call, self._promql).responses(request)
            for response in self._seen.answer("Query", request, context, answer) if self._seen else answer:
                caller.check()
                yield response

    def Queries(self, request: reader_pb2.QueriesRequest, context: grpc.ServicerContext) -> reader_pb2.QueriesResponse:
        return self._running.to_proto()

    def CancelQuery(
        self, request: reader_pb2.CancelQueryRequest, context: grpc.ServicerContext
    ) -> reader_pb2.CancelQueryResponse:
        return reader_pb2.CancelQueryResponse(found=self._running.cancel(request.number))

    def Coverage(
        self, request: reader_pb2.CoverageRequest, context: grpc.ServicerContext
    ) -> reader_pb2.CoverageResponse:
        return coverage(self._sources, context)

    def Watch(
        self, request: reader_pb2.WatchRequest, context: grpc.ServicerContext
    ) -> Iterator[reader_pb2.WatchResponse]:
        spec = decode_watch(request)
        conditions_of(spec.matchers)
        partitions = partitions_of(spec.partitions, self._sources.partitions)
        highest_offsets(spec.resume, self._sources.topic_id, partitions)
        if not self._watches.acquire(blocking=False):
            watches_refused_total.inc()
            raise Overloaded(
                f"{WATCHES_MAX} watches are open, which is the limit",
                reason="watches_limit",
                retry_after_s=5.0,
                limit=WATCHES_MAX,
            )
        try:
            with self._calls.watch(context) as call:
                yield from map(encode_watch_answer, WatchRead(self._sources, spec, call).answers(partitions))
        finally:
            self._watches.release()
