"""Reads metadata: series, label names, label values, and the coverage of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import malformed
from tsdb.answer.spec import ReadOptions
from tsdb.client.arguments import Time, arguments_of, ms_of
from tsdb.client.call import ClientCall, Method, Single
from tsdb.client.options import Selector, wire_matchers, wire_options
from tsdb.model.errors import InvalidRequest, Unavailable
from tsdb.model.labels import parse_labels
from tsdb.v1 import common_pb2, reader_pb2
from tsdb.wire.select import decode_block
from tsdb.wire.state import coverage_states

_NO_FIRST_MS = np.iinfo(np.int64).max
_NO_LAST_MS = np.iinfo(np.int64).min


class SeriesKeywords(TypedDict, total=False):
    """Keyword arguments of `series`."""

    start_ms: Time | None
    end_ms: Time | None
    series_max: int
    options: ReadOptions | None


class GroupKeywords(TypedDict, total=False):
    """Keyword arguments of `series_groups`."""

    start_ms: Time | None
    end_ms: Time | None
    options: ReadOptions | None


class LabelKeywords(TypedDict, total=False):
    """Keyword arguments of `label_names`."""

    start_ms: Time | None
    end_ms: Time | None
    options: ReadOptions | None


class ValueKeywords(LabelKeywords, total=False):
    """Keyword arguments of `label_values`."""

    values_max: int


@dataclass(frozen=True, slots=True)
class SeriesInfo:
    """A series with the times of its oldest and newest sample in memory, ms since the epoch, UTC. The times are None
    without samples.
    """

    series_id: int
    canonical: bytes
    partition: int
    first_seen_ms: int | None
    last_seen_ms: int | None

    @property
    def labels(self) -> dict[str, str]:
        """Labels by name, `__name__` included, sorted."""
        return dict(parse_labels(self.canonical))


Item = TypeVar("Item")


class Listed(list[Item]):
    """The items of an answer. warnings: a sentence for each partition that lags, because items may then be missing."""

    def __init__(self, items: Iterable[Item], warnings: Iterable[str]) -> None:
        super().__init__(items)
        self.warnings = tuple(warnings)


@dataclass(frozen=True, slots=True)
class SeriesGroup:
    """Number of series that have these values of the grouping labels; "" stands for an absent label."""

    values: tuple[str, ...]
    series: int


@arguments_of("series")
def series(
    selector: Selector | None,
    *,
    start_ms: Time | None = None,
    end_ms: Time | None = None,
    series_max: int = 0,
    options: ReadOptions | None = None,
) -> ClientCall[Listed[SeriesInfo]]:
    """Matching series, sorted by labels; None matches all. With a range, only series with a sample in [start_ms,
    end_ms)."""
    request = _series_request(selector, start_ms, end_ms, options)
    request.series_max = series_max
    return ClientCall(Method.SERIES, request, _SeriesAnswer)


@arguments_of("series_groups")
def series_groups(
    selector: Selector | None,
    group_by: Sequence[str],
    *,
    start_ms: Time | None = None,
    end_ms: Time | None = None,
    options: ReadOptions | None = None,
) -> ClientCall[Listed[SeriesGroup]]:
    """Number of series for each combination of values of the labels `group_by`, sorted."""
    if not group_by:
        raise InvalidRequest("group_by names no label", reason="bad_label")
    request = _series_request(selector, start_ms, end_ms, options)
    request.group_by.extend(group_by)
    return ClientCall(Method.SERIES, request, _GroupsAnswer)


@arguments_of("label_names")
def label_names(
    selector: Selector | None,
    *,
    start_ms: Time | None = None,
    end_ms: Time | None = None,
    options: ReadOptions | None = None,
) -> ClientCall[Listed[str]]:
    """Label names, sorted. With start_ms also those of series in history from that time on. end_ms: exclusive."""
    request = reader_pb2.LabelNamesRequest(
        matchers=_matchers(selector),
        options=wire_options(options),
        start_ms=ms_of("start_ms", start_ms),
        end_ms=ms_of("end_ms", end_ms),
    )
    return ClientCall(Method.LABEL_NAMES, request, lambda: Single(_names))


@arguments_of("label_values")
def label_values(
    name: str,
    selector: Selector | None,
    *,
    start_ms: Time | None = None,
    end_ms: Time | None = None,
    values_max: int = 0,
    options: ReadOptions | None = None,
) -> ClientCall[Listed[str]]:
    """Values of one label, sorted. start_ms, end_ms: see label_names."""
    request = reader_pb2.LabelValuesRequest(
        name=name,
        matchers=_matchers(selector),
        options=wire_options(options),
        values_max=values_max,
        start_ms=ms_of("start_ms", start_ms),
        end_ms=ms_of("end_ms", end_ms),
    )
    return ClientCall(Method.LABEL_VALUES, request, lambda: Single(_values))


def coverage() -> ClientCall[list[common_pb2.PartitionState]]:
    """State of each partition (coverage, lag, offsets), sorted by partition."""
    return ClientCall(Method.COVERAGE, reader_pb2.CoverageRequest(), lambda: Single(_partitions))


def history() -> ClientCall[list[reader_pb2.HistoryState]]:
    """Load progress of history for each partition; empty from a store, and from a querier without history."""
    return ClientCall(
        Method.COVERAGE, reader_pb2.CoverageRequest(), lambda: Single(lambda answer: list(answer.history))
    )


def chunk_stage() -> ClientCall[reader_pb2.ChunkStageState | None]:
    """The chunk stage as a querier last saw it; None from a store, and from a querier without history."""
    return ClientCall(
        Method.COVERAGE,
        reader_pb2.CoverageRequest(),
        lambda: Single(lambda answer: answer.chunk_stage if answer.HasField("chunk_stage") else None),
    )


def away() -> ClientCall[list[reader_pb2.PartAway]]:
    """Parts that do not answer the server: stores, history, the log. Empty from a store."""
    return ClientCall(Method.COVERAGE, reader_pb2.CoverageRequest(), lambda: Single(lambda answer: list(answer.away)))


def experiment() -> ClientCall[str]:
    """Name of the experiment that the server belongs to; empty for production."""
    return ClientCall(
        Method.COVERAGE, reader_pb2.CoverageRequest(), lambda: Single(lambda answer: answer.experiment.name)
    )


def _partitions(answer: reader_pb2.CoverageResponse) -> list[common_pb2.PartitionState]:
    return sorted(coverage_states(answer), key=lambda state: state.partition)


def _names(answer: reader_pb2.LabelNamesResponse) -> Listed[str]:
    return Listed(answer.names, answer.header.warnings)


def _values(answer: reader_pb2.LabelValuesResponse) -> Listed[str]:
    return Listed(answer.values, answer.header.warnings)


def _matchers(selector: Selector | None) -> list[common_pb2.Matcher]:
    return [] if selector is None else wire_matchers(selector)


def _series_request(
    selector: Selector | None, start_ms: Time | None, end_ms: Time | None, options: ReadOptions | None
) -> reader_pb2.SeriesRequest:
    return reader_pb2.SeriesRequest(
        matchers=_matchers(selector),
        start_ms=ms_of("start_ms", start_ms),
        end_ms=ms_of("end_ms", end_ms),
        options=wire_options(options),
    )


class _SeriesAnswer:
    """Reader of a Series answer: a header, then a block for each partition."""

    def __init__(self) -> None:
        self._expected: set[int] | None = None
        self._warnings: Sequence[str] = ()
        self._blocks: list[common_pb2.SeriesBlock] = []

    def add(self, message: Any) -> None:
        kind = message.WhichOneof("frame")
        if kind == "header":
            self._expected = {state.partition for state in message.header.partitions}
            self._warnings = message.header.warnings
        elif kind == "series":
            self._blocks.append(message.series)
        else:
            raise malformed(f"a frame of kind {kind} in an answer of series")

    def finish(self) -> Listed[SeriesInfo]:
        # The stream has no trailer, but its header names the partitions that must follow.
        if self._expected is None or self._expected != {block.partition for block in self._blocks}:
            raise Unavailable("the answer ended before all partitions came: it was cut off", reason="answer_cut")
        found = [info for block in self._blocks for info in _infos(block)]
        return Listed(sorted(found, key=lambda info: info.canonical), self._warnings)


def _infos(block: common_pb2.SeriesBlock) -> list[SeriesInfo]:
    series = decode_block(block)
    firsts, lasts = _seen(series.first_ms, len(series), _NO_FIRST_MS), _seen(series.last_ms, len(series), _NO_LAST_MS)
    rows = zip(series.series_ids.tolist(), series.canonical(), firsts, lasts, strict=True)
    return [SeriesInfo(key, labels, block.partition, first, last) for key, labels, first, last in rows]


def _seen(times: NDArray[np.int64] | None, series: int, none: int) -> list[int | None]:
    return [None] * series if times is None else [None if time == none else time for time in times.tolist()]


class _GroupsAnswer:
    """Reader of a Series answer with group_by: a header, then frames of groups."""

    def __init__(self) -> None:
        self._groups: list[SeriesGroup] | None = None
        self._warnings: Sequence[str] = ()

    def add(self, message: Any) -> None:
        kind = message.WhichOneof("frame")
        if kind == "groups":
            found = [SeriesGroup(tuple(group.values), group.series) for group in message.groups.groups]
            self._groups = (self._groups or []) + found
        elif kind == "header":
            self._warnings = message.header.warnings
        else:
            raise malformed(f"a frame of kind {kind} in an answer of groups")

    def finish(self) -> Listed[SeriesGroup]:
        if self._groups is None:
            raise Unavailable("the answer ended before its groups: it was cut off", reason="answer_cut")
        return Listed(self._groups, self._warnings)
