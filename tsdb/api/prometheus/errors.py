"""Errors of the API: types and codes as Prometheus has them, and where each error of ours belongs."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from tsdb.model.errors import (
    HoleInRange,
    InvalidRequest,
    OutOfCoverage,
    Overloaded,
    TsdbError,
    Unauthenticated,
    Unavailable,
)
from tsdb.ops.http.sites import FORBIDDEN
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.query.promql.running import QUERY_CANCELED, QUERY_TIMEOUT, QueryCanceled, QueryTimedOut

METHOD = "method_not_allowed"
NO_ROUTE = "no_such_route"
QUERY_QUEUE = "query_queue"
RETRY_AFTER_S = 1

# Limits of the work of one request: the same request is refused again, so it is not the server that is unavailable.
_TOO_MUCH = frozenset(
    {"series_limit", "samples_limit", "bytes_limit", "values_limit", "groups_limit", "answer_too_large"}
)
_TIMED_OUT = frozenset({"read_timeout", QUERY_TIMEOUT})
_CODES = {METHOD: 405, NO_ROUTE: 404, "message_too_large": 413, **dict.fromkeys(FORBIDDEN, 403)}


class ErrorType(enum.Enum):
    """Values of the field `errorType`."""

    TIMEOUT = "timeout"
    CANCELED = "canceled"
    EXECUTION = "execution"
    BAD_DATA = "bad_data"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    NOT_FOUND = "not_found"
    UNAUTHORIZED = "unauthorized"


_STATUS = {
    ErrorType.TIMEOUT: 503,
    ErrorType.CANCELED: 499,
    ErrorType.EXECUTION: 422,
    ErrorType.BAD_DATA: 400,
    ErrorType.INTERNAL: 500,
    ErrorType.UNAVAILABLE: 503,
    ErrorType.NOT_FOUND: 404,
    ErrorType.UNAUTHORIZED: 401,
}


class BadParameter(InvalidRequest):
    """A parameter that cannot be used, with Prometheus's words."""

    default_reason = "bad_parameter"

    def __init__(self, name: str, problem: object) -> None:
        super().__init__(f'invalid parameter "{name}": {problem}')


@dataclass(frozen=True, slots=True)
class Failure:
    """An error in the form of the API. retry_after_s: hint for the next try; None without one."""

    type: ErrorType
    status: int
    text: str
    retry_after_s: int | None = None


def failure_of(error: TsdbError) -> Failure:
    """The answer for an error of the class TsdbError."""
    kind = _type_of(error)
    status = _CODES.get(error.reason, _STATUS[kind])
    if kind is not ErrorType.UNAVAILABLE:
        return Failure(kind, status, _text(error))
    hint_s = getattr(error, "retry_after_s", None)
    return Failure(kind, status, _text(error), RETRY_AFTER_S if hint_s is None else max(1, math.ceil(hint_s)))


def _type_of(error: TsdbError) -> ErrorType:
    if error.reason == QUERY_CANCELED:
        return ErrorType.CANCELED
    if error.reason in _TIMED_OUT:
        return ErrorType.TIMEOUT
    if error.reason == NO_ROUTE:
        return ErrorType.NOT_FOUND
    if isinstance(error, EvaluationError | HoleInRange | OutOfCoverage) or error.reason in _TOO_MUCH:
        return ErrorType.EXECUTION
    if isinstance(error, InvalidRequest):
        return ErrorType.BAD_DATA
    if isinstance(error, Unavailable | Overloaded):
        return ErrorType.UNAVAILABLE
    return ErrorType.UNAUTHORIZED if isinstance(error, Unauthenticated) else ErrorType.INTERNAL


def _text(error: TsdbError) -> str:
    """Prometheus's words alone, or ours with the reason that metrics and runbooks have."""
    if isinstance(error, InvalidRequest | QueryTimedOut | QueryCanceled):
        return error.message
    return f"{error.message} (reason: {error.reason})"
