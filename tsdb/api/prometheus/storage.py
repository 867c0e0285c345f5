"""QueryStorage: what the API reads from. `querier_storage` opens that of a querier; tests have one in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

from tsdb.answer.spec import ReadOptions
from tsdb.model.selector import Matcher, MatchType
from tsdb.promql.evaluate.storage import Storage, StoredSeries
from tsdb.query.promql.metadata import QuerierMetadata
from tsdb.query.promql.storage import NO_SERIES, QuerierStorage
from tsdb.query.sources import Sources
from tsdb.reader.limits import SelectLimits
from tsdb.reader.read_call import Caller, ReadCalls
from tsdb.selector.selectors import is_utf8, matches_empty


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
        if is_utf8(matcher.name) and is_utf8(matcher.value):
            kept.append(matcher)
        elif not _holds_always(matcher):
            return None
    return kept


def _holds_always(matcher: Matcher) -> bool:
    """Whether a matcher is true of all series because its text is not UTF-8: no label has that name, or no label has
    that value."""
    return matches_empty(matcher) if is_utf8(matcher.value) else matcher.type is MatchType.NOT_EQUAL
