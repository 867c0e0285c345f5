"""Targets of queries: a server with Prometheus's HTTP API, and the evaluator in this process."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterable, Sequence
from typing import Protocol
from urllib.parse import urlencode

from support.promql.comparison import Row, block_rows, sample_rows
from support.promql.differential.answers import Answer, Failure, Query, answer_of
from support.promql.differential.dataset import StoredHistograms, StoredSamples
from support.promql.histograms import HistogramStorage
from support.promql.shown_histograms import shown_histogram
from tsdb.model.errors import TsdbError
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.query import EvaluationResult, QueryOptions, instant_query, range_query
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar, Text
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.rules.unit_tests.histograms import HistogramValue
from tsdb.selector.tokens import QueryError

ANSWER_WITHIN_S = 60.0
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Target(Protocol):
    """It answers queries; an error of the query is an answer too."""

    def query(self, text: str, at_ms: int) -> Answer:
        """The answer at one time."""

    def query_range(self, text: str, start_ms: int, end_ms: int, step_ms: int) -> Answer:
        """The answers at the steps of a range."""


def ask(target: Target, query: Query) -> Answer:
    """The answer to an instant query or a range query."""
    if query.step_ms is None:
        return target.query(query.text, query.start_ms)
    return target.query_range(query.text, query.start_ms, query.end_ms, query.step_ms)


class HttpTarget:
    """address: `host:port`, with one connection for all queries. names: the names of functions that have another name
    there.
    """

    def __init__(self, address: str, names: dict[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=ANSWER_WITHIN_S)
        self._names = names or {}

    def close(self) -> None:
        self._connection.close()

    def query(self, text: str, at_ms: int) -> Answer:
        return self._ask("query", query=text, time=_seconds(at_ms))

    def query_range(self, text: str, start_ms: int, end_ms: int, step_ms: int) -> Answer:
        times = {"start": _seconds(start_ms), "end": _seconds(end_ms), "step": _seconds(step_ms)}
        return self._ask("query_range", query=text, **times)

    def _ask(self, verb: str, *, query: str, **times: str) -> Answer:
        for name, there in self._names.items():
            query = re.sub(rf"\b{name}\b", there, query)
        self._connection.request("POST", f"/api/v1/{verb}", urlencode({"query": query, **times}), FORM)
        return answer_of(json.loads(self._connection.getresponse().read()))


class InProcess:
    """The evaluator over samples in memory."""

    def __init__(
        self,
        series: Iterable[StoredSamples],
        options: QueryOptions | None = None,
        natives: Iterable[StoredHistograms] = (),
    ) -> None:
        self._storage = HistogramStorage()
        self._options = options or QueryOptions(features=ALL_FEATURES)
        for one in series:
            self._storage.add(one.labels, one.samples)
        for native in natives:
            for ts_ms, value in native.samples:
                if isinstance(value, HistogramValue):
                    self._storage.add_histograms(native.labels, [(ts_ms, value)])
                else:
                    self._storage.add(native.labels, [(ts_ms, value)])
            self._storage.with_hints(native.labels)

    def query(self, text: str, at_ms: int) -> Answer:
        try:
            result = instant_query(text, self._storage, at_ms, self._options)
        except Exception as error:
            return Answer(failure=_failure(error))
        return _answer(result, "vector")

    def query_range(self, text: str, start_ms: int, end_ms: int, step_ms: int) -> Answer:
        try:
            result = range_query(text, self._storage, start_ms, end_ms, step_ms, self._options)
        except Exception as error:
            return Answer(failure=_failure(error))
        return _answer(result, "matrix")


def _failure(error: Exception) -> Failure:
    """A bug of the evaluator is a failure of one query, so that a run shows them all."""
    match error:
        case QueryError():
            # The only problem of a text that has no place in it.
            text = error.problem if error.problem.startswith("invalid expression type") else error.message
            return Failure("bad_data", f'invalid parameter "query": {text}')
        case EvaluationError():
            return Failure("execution", error.message)
        case TsdbError():
            return Failure("internal", error.message)
    return Failure("crash", repr(error))


def _answer(result: EvaluationResult, kind: str) -> Answer:
    rows: Sequence[Row] = ()
    text = ""
    match result.value:
        case Text():
            kind, text = "string", result.value.value
        case Scalar():
            kind, rows = "scalar", [Row((), {int(result.times_ms[0]): float(result.value.values[0])})]
        case Samples():
            kind, rows = "matrix", _shown(sample_rows(result.value))
        case Block():
            rows = _shown(block_rows(result.value, result.times_ms))
    return Answer(kind, rows, text, warnings=result.warnings, infos=result.infos)


def _shown(rows: Iterable[Row]) -> list[Row]:
    return [
        Row(
            row.labels,
            {
                ts_ms: shown_histogram(value) if isinstance(value, HistogramValue) else value
                for ts_ms, value in row.points.items()
            },
        )
        for row in rows
    ]


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.3f}"
