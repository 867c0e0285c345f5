"""ApiCall: represents one request on a thread, with the storage that it reads from and the objects that all requests
share. `querier_storage` opens the storage of a querier; tests have one in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

from tsdb.answer.spec import ReadOptions
from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.parameters import Form
from tsdb.index.cardinality import By
from tsdb.model import defaults
from tsdb.model.clock import Clock
from tsdb.model.family import Family
from tsdb.model.selector import Matcher, MatchType
from tsdb.ops.http.bodies import HttpHead
from tsdb.promql.evaluate.query import DEFAULTS, QueryOptions
from tsdb.promql.evaluate.storage import Storage, StoredSeries
from tsdb.query.promql.metadata import QuerierMetadata
from tsdb.query.promql.running import RunningQueries, RunningQuery
from tsdb.query.promql.storage import NO_SERIES, QuerierStorage
from tsdb.query.shadow.seen import AnswerObserver
from tsdb.query.sources import Sources
from tsdb.reader.read_call import AnswerBytes, Caller, ReadCalls, ReservedBytes, SelectLimits
from tsdb.selector.selectors import is_utf8, matches_empty
from tsdb.v1 import reader_pb2


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """caller: the request; a read ends with it. allow_holes, allow_stale: answer without the missing parts, and name
    them in the warnings. max_lag_ms: refuse above this lag; None: the bound of the stores."""

    caller: Caller
    allow_holes: bool = False
    allow_stale: bool = False
    max_lag_ms: int | None = None


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


OpenStorage = Callable[[StorageOptions], AbstractContextManager[QueryStorage]]


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
    does.
    """

    open_storage: OpenStorage
    families: Callable[[], Families]
    cardinality: Callable[[Caller, By, int], reader_pb2.CardinalityResponse]
    settings: Callable[[], Mapping[str, Any]]
    clock: Clock
    answers: AnswerBytes = field(default_factory=AnswerBytes)
    running: RunningQueries = field(default_factory=RunningQueries)
    seen: AnswerObserver | None = None


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


def querier_storage(sources: Sources, limits: SelectLimits, calls: ReadCalls) -> OpenStorage:
    """A function that opens the storage of a querier for one request. limits: the limits of each read. calls: the
    bounds that all reads of the process share.
    """

    @contextmanager
    def open_storage(options: StorageOptions) -> Iterator[QueryStorage]:
        accepted = ReadOptions(
            allow_holes=options.allow_holes, allow_stale=options.allow_stale, max_lag_ms=options.max_lag_ms
        )
        with calls.of(options.caller) as call:
            yield _OfQuerier(
                partial(QuerierMetadata, sources, limits, call, accepted),
                QuerierStorage(sources, limits, call, accepted),
            )

    return open_storage


class _OfQuerier:
    """Implements QueryStorage with the samples and labels of a querier. open_metadata: only a lookup needs it."""

    def __init__(self, open_metadata: Callable[[], QuerierMetadata], samples: QuerierStorage) -> None:
        self._open_metadata = open_metadata
        self._samples = samples

    @cached_property
    def _metadata(self) -> QuerierMetadata:
        return self._open_metadata()

    @property
    def warnings(self) -> Sequence[str]:
        return self._metadata.warnings

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        wanted = valid_matchers(matchers)
        return NO_SERIES if wanted is None else self._samples.select(wanted, start_ms, end_ms)

    def series(self, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None) -> Sequence[bytes]:
        wanted = valid_matchers(matchers)
        return [] if wanted is None else self._metadata.series(wanted, start_ms, end_ms)

    def label_names(self, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None) -> Sequence[str]:
        wanted = valid_matchers(matchers)
        return [] if wanted is None else self._metadata.label_names(wanted, start_ms, end_ms)

    def label_values(
        self, name: str, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None
    ) -> Sequence[str]:
        wanted = valid_matchers(matchers)
        return [] if wanted is None else self._metadata.label_values(name, wanted, start_ms, end_ms)


def valid_matchers(matchers: Sequence[Matcher]) -> Sequence[Matcher] | None:
    """The matchers without those that hold for each series since their text is not UTF-8, as all labels are; None when
    one of these holds for no series."""
    kept: list[Matcher] = []
    for matcher in matchers:
        if (matcher.name + matcher.value).isascii() or (is_utf8(matcher.name) and is_utf8(matcher.value)):
            kept.append(matcher)
        elif not _holds_always(matcher):
            return None
    return kept


def _holds_always(matcher: Matcher) -> bool:
    """Whether a matcher is true of all series because its text is not UTF-8: no label has that name, or no label has
    that value."""
    return matches_empty(matcher) if is_utf8(matcher.value) else matcher.type is MatchType.NOT_EQUAL
