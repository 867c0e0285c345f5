"""Queries: answers `query` and `query_range`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.answer import Representation, Result, accepts, json_of
from tsdb.api.prometheus.arrow import MEDIA_TYPE, arrow_answer, arrow_rows
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.json.rows import PIECE_BYTES, matrix_rows, sample_rows, vector_rows
from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import Matcher
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import adder, counter, histogram
from tsdb.promql.evaluate.query import EvaluationResult, QueryOptions, instant_query, range_query
from tsdb.promql.evaluate.storage import Storage, StoredSeries
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar, Text
from tsdb.promql.syntax.numbers import shown_f
from tsdb.query.promql.running import IN_QUEUE, TEXT_CHARS_MAX
from tsdb.query.promql.slow import SlowQuery
from tsdb.query.promql.storage import NotSmall
from tsdb.selector.tokens import QueryError
from tsdb.v1 import reader_pb2

TRUNCATED = "results truncated due to limit"
TRIAL_STEPS_MAX = 256  # A function over a range visits all its samples at each step.

_KINDS = ("instant", "range", "remote_read")
_duration = histogram(
    "tsdb_query_duration_seconds",
    "Time from the arrival of a PromQL query to its result, which is then written and sent.",
    "kind",
    _KINDS,
)
_duration_of = {kind: _duration.labels(kind) for kind in _KINDS}
_samples = counter("tsdb_query_samples_total", "Samples that PromQL queries read.")
_series = counter("tsdb_query_series_total", "Series that PromQL queries read; one that is read twice counts twice.")
_add_samples, _add_series = adder(_samples), adder(_series)
_slow = counter("tsdb_query_slow_total", "PromQL queries that took query_slow_s or longer; the log has each.")

log = get_logger(__name__)


def instant(call: ApiCall) -> Result | Representation:
    """Answers `/api/v1/query`: values at one time."""
    limit = parameters.limit(call.form)
    at_ms = parameters.optional_time(call.form, "time")
    if at_ms is None:
        at_ms = call.sources.clock.now_ms()
    call.running.shorten(parameters.timeout_s(call.form, call.options.timeout_s))
    return _answer(call, instant_result(call, call.form.get("query"), at_ms), limit)


def ranged(call: ApiCall) -> Result | Representation:
    """Answers `/api/v1/query_range`: values over steps."""
    limit = parameters.limit(call.form)
    steps = parameters.steps(call.form)
    call.running.shorten(parameters.timeout_s(call.form, call.options.timeout_s))
    return _answer(call, range_result(call, call.form.get("query"), steps), limit)


def is_of_bounds(error: Exception) -> bool:
    """Whether an error of a trial may be due to its bounds. Others are answered: no bound makes a query malformed."""
    return not isinstance(error, InvalidRequest) or error.reason == "too_many_samples"


def query_problem(error: QueryError) -> str:
    """The text of a query's error. As in Prometheus, it names no position when the type of the whole query is wrong."""
    return error.problem if error.problem.startswith("invalid expression type") else error.message


class MeteredStorage:
    """A Storage that counts what is read. check: raises when the query has ended. seconds: spent in reads.

    newest_ms: time of the newest sample that was read, None without one; looked for with finds_newest alone, because
    that goes through the times of all samples.
    """

    def __init__(self, storage: Storage, check: Callable[[], None], *, finds_newest: bool = False) -> None:
        self._storage = storage
        self._check = check
        self._finds_newest = finds_newest
        self.series = 0
        self.samples = 0
        self.newest_ms: int | None = None
        self.selects = 0
        self.seconds = 0.0

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        began = time.perf_counter()
        found = self._storage.select(matchers, start_ms, end_ms)
        self.seconds += time.perf_counter() - began
        self.selects += 1
        self.series += len(found.labels)
        self.samples += len(found.ts_ms)
        if self._finds_newest and len(found.ts_ms):
            newest_ms = int(found.ts_ms.max())
            self.newest_ms = newest_ms if self.newest_ms is None else max(newest_ms, self.newest_ms)
        self._check()
        return found


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in seconds. queue: time from the arrival until a thread takes the request."""

    queue: float
    evaluation: float


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A result, with the counts and times of its evaluation."""

    found: EvaluationResult
    read: MeteredStorage
    timing: Timing
    steps: parameters.QuerySteps


def instant_result(call: ApiCall, text: str, at_ms: int, *, finds_newest: bool = False) -> Evaluated:
    """The value of a query at one time. finds_newest: see MeteredStorage. Raises BadParameter (query), and the errors
    of the storage."""
    return _evaluated(call, text, parameters.QuerySteps(at_ms, at_ms, 0), finds_newest=finds_newest)


def range_result(call: ApiCall, text: str, steps: parameters.QuerySteps, *, finds_newest: bool = False) -> Evaluated:
    """The values of a query over steps. Raises the errors of `instant_result`."""
    return _evaluated(call, text, steps, finds_newest=finds_newest)


def _evaluated(call: ApiCall, text: str, steps: parameters.QuerySteps, *, finds_newest: bool) -> Evaluated:
    call.running.text = text
    lookback_ms = parameters.lookback_ms(call.form, call.options.query.lookback_ms)
    own = call.options.query
    options = QueryOptions(
        own.features,
        lookback_ms,
        own.subquery_step_ms,
        own.delays_name_removal,
        own.values_max,
        call.hold,
        call.check,
    )
    if call.trial_s is not None and (steps.end_ms - steps.start_ms) // (steps.step_ms or 1) > TRIAL_STEPS_MAX:
        raise NotSmall("the query has many steps")
    queue_s, began, problem = call.running.age_s, time.perf_counter(), None
    call.running.check(IN_QUEUE)
    with call.storage() as storage:
        metered = MeteredStorage(storage, call.check, finds_newest=finds_newest)
        try:
            if steps.step_ms:
                found = range_query(text, metered, steps.start_ms, steps.end_ms, steps.step_ms, options)
            else:
                found = instant_query(text, metered, steps.start_ms, options)
        except Exception as error:
            problem = error
            if isinstance(error, QueryError):
                raise BadParameter("query", query_problem(error)) from error
            raise
        finally:
            timing = Timing(queue_s, time.perf_counter() - began)
            if call.trial_s is None or not (problem is not None and is_of_bounds(problem)):
                report(call, "range" if steps.step_ms else "instant", metered, timing)
        call.hold(_size(found.value))
    if call.sources.seen is not None:
        call.sources.seen.result(lambda: _request(call, steps, lookback_ms), found, timing.evaluation)
    return Evaluated(found, metered, timing, steps)


def _answer(call: ApiCall, evaluated: Evaluated, limit: int) -> Result | Representation:
    found = evaluated.found
    kind = "range" if evaluated.steps.step_ms else "instant"
    value, cut = _limited(found.value, limit)
    warnings = (*found.warnings, TRUNCATED) if cut else found.warnings
    result_type = _result_type(value, kind)
    if accepts(call.head, MEDIA_TYPE):
        rows = arrow_rows(value, found.times_ms)
        call.hold(_size(value) + rows.label_bytes)
        return arrow_answer(result_type, rows, warnings, found.infos)
    stats = _stats(evaluated.read, evaluated.timing) if call.form.first.get("stats") else b""
    return Result(_data(result_type, _json(value, kind, found.times_ms), stats), warnings, found.infos)


def _request(call: ApiCall, steps: parameters.QuerySteps, lookback_ms: int) -> reader_pb2.QueryRequest:
    """The request with which Reader.Query gives the same result."""
    request = reader_pb2.QueryRequest(
        query=call.running.text,
        start_ms=steps.start_ms,
        end_ms=steps.end_ms,
        step_ms=steps.step_ms,
        lookback_ms=lookback_ms,
    )
    request.options.allow_stale = call.form.flag("allow_stale")
    request.options.allow_holes = call.form.flag("allow_holes")
    max_lag_ms = parameters.max_lag_ms(call.form)
    if max_lag_ms is not None:
        request.options.max_lag_ms = max_lag_ms
    return request


def _result_type(value: Block | Samples | Scalar | Text, kind: str) -> str:
    if isinstance(value, Scalar):
        return "scalar"
    if isinstance(value, Text):
        return "string"
    return "vector" if isinstance(value, Block) and kind == "instant" else "matrix"


def _json(
    value: Block | Samples | Scalar | Text, kind: str, times_ms: NDArray[np.int64]
) -> Iterator[bytes | memoryview]:
    if isinstance(value, Scalar):
        return _pair(times_ms, shown_f(float(value.values[0])))
    if isinstance(value, Text):
        return _pair(times_ms, value.value)
    if isinstance(value, Samples):
        return _array(sample_rows(value))
    return _array(vector_rows(value, times_ms) if kind == "instant" else matrix_rows(value, times_ms))


def _data(kind: str, result: Iterator[bytes | memoryview], stats: bytes) -> Iterator[bytes | memoryview]:
    return chain((b'{"resultType":"%b","result":' % kind.encode(),), result, (stats + b"}",))


def _pair(times_ms: NDArray[np.int64], text: str) -> Iterator[bytes | memoryview]:
    at_ms = int(times_ms[0])
    return iter((json_of([at_ms / 1000 if at_ms % 1000 else at_ms // 1000, text]),))


def _array(rows: Iterator[memoryview]) -> Iterator[bytes | memoryview]:
    return chain((b"[",), rows, (b"]",))


def _limited(value: Block | Samples | Scalar | Text, limit: int) -> tuple[Block | Samples | Scalar | Text, bool]:
    """The first `limit` series of a vector, and whether it had more."""
    if not limit or not isinstance(value, Block | Samples) or len(value.labels) <= limit:
        return value, False
    rows = np.arange(limit)
    if isinstance(value, Block):
        return value.subset(rows), True
    labels, starts = value.labels.subset(rows), value.starts[: limit + 1]
    return replace(value, labels=labels, starts=starts, loses_name=value.loses_name[:limit]), True


def _size(value: Block | Samples | Scalar | Text) -> int:
    """Bytes of a result and of the pieces that are written from it."""
    return value.nbytes + 4 * PIECE_BYTES if isinstance(value, Block | Samples) else 0


def report(call: ApiCall, kind: str, metered: MeteredStorage, timing: Timing) -> None:
    seconds = timing.queue + timing.evaluation
    _duration_of[kind].observe(seconds)
    _add_samples(metered.samples)
    _add_series(metered.series)
    if seconds >= call.options.slow_s:
        _slow.inc()
        log.warning(
            "slow query",
            query=call.running.text[:TEXT_CHARS_MAX],
            kind=kind,
            seconds=round(seconds, 3),
            queue_s=round(timing.queue, 3),
            read_s=round(metered.seconds, 3),
            selects=metered.selects,
            series=metered.series,
            samples=metered.samples,
        )
        slow = SlowQuery(
            ended_ms=call.sources.clock.now_ms(),
            text=call.running.text[:TEXT_CHARS_MAX],
            kind=kind,
            seconds=seconds,
            queue_s=timing.queue,
            read_s=metered.seconds,
            series=metered.series,
            samples=metered.samples,
        )
        call.sources.running.slow.add(slow)


def _stats(metered: MeteredStorage, timing: Timing) -> bytes:
    """Statistics of the phases that Prometheus reports and that exist here."""
    inner_s = max(0.0, timing.evaluation - metered.seconds)
    timings = {
        "evalTotalTime": timing.evaluation,
        "resultSortTime": 0,
        "queryPreparationTime": metered.seconds,
        "innerEvalTime": inner_s,
        "execQueueTime": timing.queue,
        "execTotalTime": timing.queue + timing.evaluation,
    }
    samples = {"totalQueryableSamples": metered.samples, "peakSamples": metered.samples}
    return b',"stats":' + json_of({"timings": timings, "samples": samples})
