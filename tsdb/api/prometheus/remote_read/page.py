"""Page of remote read: the samples of selectors, for Prometheus and others that evaluate themselves."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tsdb.api.prometheus.answer import Representation
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import Failure
from tsdb.api.prometheus.pages.query import MeteredStorage, Timing, report
from tsdb.api.prometheus.parameters import quoted
from tsdb.api.prometheus.remote_read.chunks import chunks_answer
from tsdb.api.prometheus.remote_read.request import Query, ReadRequest, ResponseType, read_request
from tsdb.api.prometheus.remote_read.samples import message_bytes, samples_answer
from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import MATCH_TYPES
from tsdb.ops.http.bodies import HttpAnswer
from tsdb.ops.logs import get_logger
from tsdb.promql.evaluate.storage import Storage, StoredSeries
from tsdb.query.promql.storage import NO_SERIES

SAMPLE_BYTES = 16
LABEL_COPIES = 6  # The texts, and each name and value by itself, by which series are sorted.
MAX_LAG_MS = 1000  # The freshness objective.
WARNINGS_MAX = 10  # Most warnings of one answer in the log.

# The handler does not answer with these; Prometheus's router and its proxies do.
_KEPT_STATUS = frozenset({401, 404, 405})
_SYMBOLS = {kind: symbol for symbol, kind in MATCH_TYPES.items()}

log = get_logger(__name__)


def read(call: ApiCall) -> Representation:
    """Answers `/api/v1/read`. Parameters of the URL may accept losses; the log then names them.

    The answer has no field for a warning, so a lag beyond the freshness objective is refused unless the URL accepts it.
    """
    request = read_request(call.body, call.hold)
    call.running.text = " ".join(map(_text, request.queries))
    queue_s, began = call.running.age_s, time.perf_counter()
    with call.storage(MAX_LAG_MS) as storage:
        metered = MeteredStorage(storage, call.running.check)
        try:
            found = [_select(metered, query) for query in request.queries]
            streams = _streams(request, found)
        finally:
            report(call, "remote_read", metered, Timing(queue_s, time.perf_counter() - began))
        call.hold(_size(found) + (0 if streams else message_bytes(found)))
    if warnings := [warning for one in found for warning in one.warnings]:
        log.info("remote read may lack samples", query=call.running.text[:1000], warnings=warnings[:WARNINGS_MAX])
    return chunks_answer(found) if streams else samples_answer(found, call.running.check)


def failed(failure: Failure) -> HttpAnswer:
    """A refusal as Prometheus's handler has it: plain text, 400 for what the request caused, else 500."""
    status = failure.status
    if status not in _KEPT_STATUS:
        status = 400 if status < 499 else 500
    return HttpAnswer(
        status, f"{failure.text}\n".encode(errors="replace"), headers=(("x-content-type-options", "nosniff"),)
    )


def _select(storage: Storage, query: Query) -> StoredSeries:
    """The series of a query. As in Prometheus, a query without matchers has no series."""
    return storage.select(query.matchers, query.start_ms, query.end_ms) if query.matchers else NO_SERIES


def _streams(request: ReadRequest, found: Sequence[StoredSeries]) -> bool:
    """Whether the answer is chunks. Native histograms are sent as samples, which Prometheus accepts beside chunks.

    Raises InvalidRequest (native_histograms) for a caller that accepts chunks alone.
    """
    if request.response_type is ResponseType.SAMPLES:
        return False
    if not any(one.details is not None and one.details.histograms is not None for one in found):
        return True
    if not request.takes_samples:
        raise InvalidRequest(
            f"{' '.join(map(_text, request.queries))} selects native histograms, which remote read sends in the form "
            "SAMPLES alone: accept it too, select other series, or send the query to /api/v1/query",
            reason="native_histograms",
        )
    return False


def _size(found: Sequence[StoredSeries]) -> int:
    details = sum(one.details.nbytes for one in found if one.details is not None)
    return details + sum(SAMPLE_BYTES * len(one.ts_ms) + LABEL_COPIES * sum(map(len, one.labels)) for one in found)


def _text(query: Query) -> str:
    return "{" + ",".join(f"{one.name}{_SYMBOLS[one.type]}{quoted(one.value)}" for one in query.matchers) + "}"
