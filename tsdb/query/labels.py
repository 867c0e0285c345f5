"""Labels over stores and history: finds label names, or the values of one label, of all matching series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tsdb.model.errors import Overloaded
from tsdb.model.labels import parse_labels
from tsdb.query.history.index import Choice
from tsdb.query.join.accepted_holes import AcceptedHoles
from tsdb.query.join.history_series import history_series
from tsdb.query.sources import Sources, joined_warnings, request_for, stores_answering
from tsdb.query.stores.fan_out import ShareStreams, open_all
from tsdb.query.stores.hedge import Start
from tsdb.query.stores.routing import NO_START_MS, Routing, Share
from tsdb.reader.limits import LABEL_VALUES_MAX
from tsdb.reader.read_call import ReadCall
from tsdb.reader.request import LabelsSpec
from tsdb.v1 import common_pb2, reader_pb2


class LabelsRead:
    """One LabelNames or LabelValues call. Not thread-safe: it runs on the caller's thread."""

    def __init__(self, sources: Sources, query: LabelsSpec, caller: ReadCall, *, allow_holes: bool) -> None:
        self._sources = sources
        self._query = query
        self._caller = caller
        self._allow_holes = allow_holes
        history = None if sources.history is None else sources.history.store
        start_ms = NO_START_MS if query.start_ms is None else query.start_ms
        self._accepted = AcceptedHoles(history, start_ms, query.end_ms, allow_holes=allow_holes)

    def names(
        self, request: reader_pb2.LabelNamesRequest, partitions: Sequence[int]
    ) -> tuple[reader_pb2.SelectHeader, set[str]]:
        """Raises as Select."""
        with stores_answering(request, self._caller):
            opened = self._open(
                partitions,
                lambda share, caller: [share.store.label_names(self._for(request, share), caller)],
            )
        found = {name for one in opened for name in one.first[0].names}
        found.update(name for canonical in self._history_labels(opened) for name, _ in parse_labels(canonical))
        return _header(opened), found

    def values(
        self, request: reader_pb2.LabelValuesRequest, partitions: Sequence[int]
    ) -> tuple[reader_pb2.SelectHeader, set[str]]:
        """Raises as Select, and Overloaded (values_limit)."""
        with stores_answering(request, self._caller):
            opened = self._open(
                partitions,
                lambda share, caller: [share.store.label_values(self._for(request, share), caller)],
            )
        found = {value for one in opened for value in one.first[0].values}
        for canonical in self._history_labels(opened):
            found.update(value for name, value in parse_labels(canonical) if name == request.name and value)
        _check_values(request, len(found))
        return _header(opened), found

    def _open(self, partitions: Sequence[int], start: Start[Any]) -> list[ShareStreams[Any]]:
        start_ms = NO_START_MS if self._query.start_ms is None else self._query.start_ms
        history = self._sources.history is not None and self._query.start_ms is not None
        routing = Routing(self._sources.stores, self._sources.topic_id, start_ms, history=history)
        opened = open_all(routing, partitions, start, self._caller, self._accepted.handle_refusal)
        self._accepted.check(state for one in opened for state in one.first[0].header.partitions)
        return opened

    def _for(self, request: Any, share: Share) -> Any:
        """The request to the store of a share. Where history is added, it has no start: memory then gives all that it
        holds."""
        mine = self._accepted.apply(request_for(request, share), share)
        if not share.alone:
            mine.ClearField("start_ms")
        return mine

    def _history_labels(self, opened: list[ShareStreams[Any]]) -> Iterator[bytes]:
        joined: dict[int, common_pb2.PartitionState] = {
            state.partition: state for one in opened if not one.share.alone for state in one.first[0].header.partitions
        }
        if not joined or self._sources.history is None or self._query.start_ms is None:
            return
        found = history_series(
            self._sources.history,
            joined,
            Choice(self._query.matchers),
            self._query.start_ms,
            self._query.end_ms,
            allow_holes=self._allow_holes,
            check_going=self._caller.check_going,
        )
        for series in found.values():
            yield from series.labels


def _check_values(request: reader_pb2.LabelValuesRequest, values: int) -> None:
    limit = min(LABEL_VALUES_MAX, request.values_max or LABEL_VALUES_MAX)
    if values > limit:
        raise Overloaded(
            f"label {request.name!r} has over {limit} values; add matchers", reason="values_limit", limit=limit
        )


def _header(opened: list[ShareStreams[Any]]) -> reader_pb2.SelectHeader:
    states = [state for one in opened for state in one.first[0].header.partitions]
    return reader_pb2.SelectHeader(
        partitions=sorted(states, key=lambda state: state.partition),
        warnings=joined_warnings(one.first[0].header for one in opened),
    )
