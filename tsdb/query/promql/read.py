"""Answers one Reader.Query: checks the request, evaluates it over the querier, and sends the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tsdb.answer.spec import ReadOptions
from tsdb.model.errors import InvalidRequest
from tsdb.model.window import TIME_MAX_MS
from tsdb.promql.evaluate.query import EvaluationResult, QueryOptions, instant_query, range_query
from tsdb.promql.evaluate.vectors.block import Block, Samples
from tsdb.query.promql.answer import messages
from tsdb.query.promql.storage import QuerierStorage
from tsdb.query.sources import Sources
from tsdb.reader.read_call import ReadCall, SelectLimits
from tsdb.v1 import reader_pb2

STEPS_MAX = 11_000  # The limit of Prometheus.


def check_query(request: reader_pb2.QueryRequest) -> None:
    """Raises InvalidRequest (bad_range, bad_options)."""
    for name in ("start_ms", "end_ms"):
        if abs(getattr(request, name)) > TIME_MAX_MS:
            raise InvalidRequest(f"{name} is {getattr(request, name)}: out of range", reason="bad_range")
    if request.step_ms < 0 or request.lookback_ms < 0:
        raise InvalidRequest("step_ms and lookback_ms must not be negative", reason="bad_range")
    if request.end_ms < request.start_ms:
        raise InvalidRequest("end timestamp must not be before start timestamp", reason="bad_range")
    if not request.step_ms and request.end_ms != request.start_ms:
        raise InvalidRequest("a range needs a step_ms above 0", reason="bad_range")
    if request.step_ms and (request.end_ms - request.start_ms) // request.step_ms >= STEPS_MAX:
        raise InvalidRequest(
            f"the range has more than {STEPS_MAX} steps, which is the limit: take a larger step_ms", reason="bad_range"
        )
    options = request.options
    if options.partitions or options.after:
        raise InvalidRequest(
            "a query takes the options allow_stale, allow_holes and max_lag_ms alone", reason="bad_options"
        )


class QueryRead:
    """Runs on the caller's thread. options: options of the server."""

    def __init__(self, sources: Sources, limits: SelectLimits, call: ReadCall, options: QueryOptions) -> None:
        self._sources = sources
        self._limits = limits
        self._call = call
        self._options = replace(options, hold=call.hold_values, check=call.check_going)

    def responses(self, request: reader_pb2.QueryRequest) -> Iterator[reader_pb2.QueryResponse]:
        """The answer to a request that was checked. Raises QueryError, EvaluationError and the errors of reads."""
        result = self._evaluated(request)
        if isinstance(result.value, Block | Samples):
            self._call.hold_values(result.value.nbytes)
        yield from messages(result, with_histograms=request.histograms)

    def _evaluated(self, request: reader_pb2.QueryRequest) -> EvaluationResult:
        options = request.options
        max_lag_ms = options.max_lag_ms if options.HasField("max_lag_ms") else None
        allowed = ReadOptions(allow_stale=options.allow_stale, allow_holes=options.allow_holes, max_lag_ms=max_lag_ms)
        storage = QuerierStorage(self._sources, self._limits, self._call, allowed)
        query = self._options
        if request.lookback_ms:
            query = replace(query, lookback_ms=request.lookback_ms)
        if not request.step_ms:
            return instant_query(request.query, storage, request.start_ms, query)
        return range_query(request.query, storage, request.start_ms, request.end_ms, request.step_ms, query)
