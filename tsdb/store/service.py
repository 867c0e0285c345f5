"""The Reader service of a store: it encodes reads for the wire (proto/tsdb/v1/reader.proto)."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import grpc

from tsdb.model.errors import InvalidRequest
from tsdb.reader.cardinality import cardinality_spec, counted
from tsdb.reader.read_call import ReadCalls
from tsdb.store.reads import StoreReads
from tsdb.v1 import reader_pb2, reader_pb2_grpc
from tsdb.wire.exemplars import decode_exemplars_spec, encode_exemplars_answer
from tsdb.wire.select import AnswerEncoder, decode_select
from tsdb.wire.series import decode_labels, decode_series, encode_names, encode_series_answer, encode_values
from tsdb.wire.state import decode_options, encode_coverage
from tsdb.wire.watch import decode_watch, encode_watch_answer


class ReaderService(reader_pb2_grpc.ReaderServicer):
    """Called from the server's threads. experiment: empty: production."""

    def __init__(self, reads: StoreReads, calls: ReadCalls | None = None, experiment: str = "") -> None:
        self._reads = reads
        self._calls = calls or ReadCalls()
        self._experiment = experiment
        self._encoder = AnswerEncoder()

    def Select(  # type: ignore[override]  # Its messages are encoded already.
        self, request: reader_pb2.SelectRequest, context: grpc.ServicerContext
    ) -> Generator[bytes]:
        spec = decode_select(request)
        with self._calls.of(context) as call:
            yield from self._encoder.messages((self._reads.select(spec, call),))

    def Series(
        self, request: reader_pb2.SeriesRequest, context: grpc.ServicerContext
    ) -> Iterator[reader_pb2.SeriesResponse]:
        spec = decode_series(request)
        with self._calls.of(context) as call:
            yield from map(encode_series_answer, self._reads.series(spec, call))

    def LabelNames(
        self, request: reader_pb2.LabelNamesRequest, context: grpc.ServicerContext
    ) -> reader_pb2.LabelNamesResponse:
        spec = decode_labels(request)
        with self._calls.of(context) as call:
            answer = self._reads.labels(spec, call)
            call.release_when_sent()
        return encode_names(answer)

    def LabelValues(
        self, request: reader_pb2.LabelValuesRequest, context: grpc.ServicerContext
    ) -> reader_pb2.LabelValuesResponse:
        spec = decode_labels(request)
        with self._calls.of(context) as call:
            answer = self._reads.labels(spec, call)
            call.release_when_sent()
        return encode_values(answer)

    def Exemplars(
        self, request: reader_pb2.ExemplarsRequest, context: grpc.ServicerContext
    ) -> Iterator[reader_pb2.ExemplarsResponse]:
        spec = decode_exemplars_spec(request)
        with self._calls.of(context) as call:
            yield from map(encode_exemplars_answer, self._reads.exemplars(spec, call))

    def Cardinality(
        self, request: reader_pb2.CardinalityRequest, context: grpc.ServicerContext
    ) -> reader_pb2.CardinalityResponse:
        query = cardinality_spec(request)
        with self._calls.of(context) as call:
            reads = self._reads.label_reads(decode_options(request.options), call)
            response = counted(reads, query, self._reads.placement_labels, call)
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
        return encode_coverage(self._reads.states(sizes=True), self._experiment)

    def Watch(
        self, request: reader_pb2.WatchRequest, context: grpc.ServicerContext
    ) -> Iterator[reader_pb2.WatchResponse]:
        yield from map(encode_watch_answer, self._reads.watch(decode_watch(request), context, self._calls))


def _no_promql() -> InvalidRequest:
    return InvalidRequest(
        "a store does not evaluate PromQL: ask a querier or a standalone process, or select samples from here",
        reason="no_promql",
    )
