"""ApiCall: represents one request on a thread, with the objects that all requests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.form import Form
from tsdb.api.prometheus.storage import OpenStorage, QueryStorage, StorageOptions
from tsdb.index.cardinality import By
from tsdb.model import defaults
from tsdb.model.clock import Clock
from tsdb.model.family import Family
from tsdb.ops.http.bodies import HttpHead
from tsdb.promql.evaluate.query import DEFAULTS, QueryOptions
from tsdb.query.promql.running import RunningQueries, RunningQuery
from tsdb.query.shadow.seen import AnswerObserver, NothingSeen
from tsdb.reader.limits import AnswerBytes, ReservedBytes
from tsdb.reader.read_call import Caller
from tsdb.v1 import reader_pb2


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """timeout_s: the timeout of a query. running_max, waiting_max: queries that run at once, and that wait.
    lookups_max: lookups of labels at once. query: options of each query, which a request may change. slow_s: a query
    that takes longer is logged. cors_origin: a regular expression. send_s: time to send an answer.
    """

    timeout_s: float = defaults.QUERY_TIMEOUT_S
    running_max: int = 8
    waiting_max: int = defaults.QUERIES_WAITING_MAX
    lookups_max: int = 4
    query: QueryOptions = DEFAULTS
    slow_s: float = defaults.QUERY_SLOW_S
    cors_origin: str = ".*"
    send_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Families:
    """by_name: all families. age_s: age of a copy that could not be refreshed; None for a fresh copy."""

    by_name: Mapping[str, Family]
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class ApiSources:
    """Sources of the answers, shared by all requests.

    families: metadata of metric families by name. cardinality: the largest groups of series in memory, of a kind and
    number. settings: the settings of the process, as plain values, secrets masked. answers: the memory of all answers.
    running: the queries of the process, those of other services too. seen: sees the results of queries.
    """

    open_storage: OpenStorage
    families: Callable[[], Families]
    cardinality: Callable[[Caller, By, int], reader_pb2.CardinalityResponse]
    settings: Callable[[], Mapping[str, Any]]
    clock: Clock
    answers: AnswerBytes = field(default_factory=AnswerBytes)
    running: RunningQueries = field(default_factory=RunningQueries)
    seen: AnswerObserver = field(default_factory=NothingSeen)


@dataclass(frozen=True, slots=True)
class ApiCall:
    """variable: variable part of the path, "" without one. held: memory of the answer until it is sent."""

    head: HttpHead
    body: bytes | bytearray
    form: Form
    variable: str
    running: RunningQuery
    sources: ApiSources
    options: ApiOptions
    held: ReservedBytes

    def storage(self, max_lag_ms: int | None = None) -> AbstractContextManager[QueryStorage]:
        """The storage with the options of the request. max_lag_ms: bound for a request that names none."""
        allow_stale = self.form.flag("allow_stale")
        own_ms = parameters.max_lag_ms(self.form)
        options = StorageOptions(
            self.running, self.form.flag("allow_holes"), allow_stale, max_lag_ms if own_ms is None else own_ms
        )
        return self.sources.open_storage(options)

    def hold(self, size: int) -> None:
        """Set the memory of the whole answer. Raises Overloaded."""
        self.held.hold(size, self.running.check)
