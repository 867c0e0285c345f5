"""ApiCall: represents one request on a thread, with the storage that it reads from and the objects that all requests
share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.spec import ReadOptions
from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.parameters import Form
from tsdb.index.cardinality import By
from tsdb.model import defaults
from tsdb.model.clock import Clock
from tsdb.model.family import Family
from tsdb.model.selector import Matcher
from tsdb.ops.http.bodies import HttpHead
from tsdb.promql.evaluate.query import DEFAULTS, QueryOptions
from tsdb.promql.evaluate.storage import Storage
from tsdb.query.promql.running import RunningQueries, RunningQuery
from tsdb.query.promql.storage import NotSmall
from tsdb.query.shadow.seen import AnswerObserver
from tsdb.reader.read_call import AnswerBytes, Caller, ReservedBytes
from tsdb.rules.remote import RuleGroups
from tsdb.v1 import reader_pb2

# A trial ends at the first check after this CPU time. A busy machine makes no query larger.
TRIAL_S = 0.003


class SeriesExemplars(Protocol):
    """Exemplars of one series. ts_ms: int64; values: float64."""

    @property
    def ts_ms(self) -> NDArray[np.int64]: ...

    @property
    def values(self) -> NDArray[np.float64]: ...

    @property
    def nbytes(self) -> int: ...

    def __len__(self) -> int: ...

    def labels_of(self, index: int) -> bytes:
        """Canonical labels of one exemplar."""


class QueryStorage(Storage, Protocol):
    """Used by one request, on one thread.

    Times are milliseconds, both ends included; None: no bound. Without matchers every series is selected. An answer is
    never silently incomplete: it raises TsdbError instead.
    """

    @property
    def warnings(self) -> Sequence[str]:
        """Losses that the answers of lookups so far may have."""

    def series(self, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None) -> Sequence[bytes]:
        """Canonical labels of the series, each once."""

    def label_names(self, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None) -> Sequence[str]:
        """Names of the labels of the series."""

    def label_values(
        self, name: str, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None
    ) -> Sequence[str]:
        """Values of one label of the series."""

    def exemplars(
        self, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None
    ) -> Sequence[tuple[bytes, SeriesExemplars]]:
        """Canonical labels of the series that have exemplars in the range, and these, in the order of arrival."""


OpenStorage = Callable[[Caller, ReadOptions], AbstractContextManager[QueryStorage]]
"""Opens the storage of a request; a read ends with its caller."""


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
    running: the queries of the process, those of other services too. seen: sees the results of queries; None: nothing
    does. rule_groups: the groups of the ruler of this process, or of those of a cluster. asks_rulers: whether it asks
    other processes for them. open_small: opens the storages of trials (`small.py`); None: no query is tried.
    """

    open_storage: OpenStorage
    families: Callable[[], Families]
    cardinality: Callable[[Caller, By, int], reader_pb2.CardinalityResponse]
    settings: Callable[[], Mapping[str, Any]]
    clock: Clock
    answers: AnswerBytes = field(default_factory=AnswerBytes)
    running: RunningQueries = field(default_factory=RunningQueries)
    seen: AnswerObserver | None = None
    rule_groups: Callable[[], RuleGroups] = RuleGroups
    asks_rulers: bool = False
    open_small: OpenStorage | None = None


@dataclass(frozen=True, slots=True)
class ApiCall:
    """variable: variable part of the path, "" without one. held: memory of the answer until it is sent. trial_s: CPU
    time of the thread at the begin of a trial; None: no trial. A thread answers the request of a failed trial anew."""

    head: HttpHead
    body: bytes | bytearray
    form: Form
    variable: str
    running: RunningQuery
    sources: ApiSources
    options: ApiOptions
    held: ReservedBytes
    trial_s: float | None = None

    def storage(self, max_lag_ms: int | None = None) -> AbstractContextManager[QueryStorage]:
        """The storage with the options of the request. max_lag_ms: bound for a request that names none."""
        allow_stale = self.form.flag("allow_stale")
        own_ms = parameters.max_lag_ms(self.form)
        accepted = ReadOptions(
            allow_stale=allow_stale,
            max_lag_ms=max_lag_ms if own_ms is None else own_ms,
            allow_holes=self.form.flag("allow_holes"),
        )
        return self.sources.open_storage(self.running, accepted)

    def check(self) -> None:
        """Raises QueryCanceled, QueryTimedOut; NotSmall when a trial has taken its time."""
        self.running.check()
        # The CPU time takes a system call.
        if self.trial_s is not None and self.running.age_s > TRIAL_S and time.thread_time() - self.trial_s > TRIAL_S:
            raise NotSmall("the query takes its time")

    def hold(self, size: int) -> None:
        """Set the memory of the whole answer. Raises Overloaded."""
        self.held.hold(size, self.running.check)
