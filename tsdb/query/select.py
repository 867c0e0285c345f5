"""Selects over stores and history. The answer is exact or an error, wherever the samples are.

Memory comes first. For a partition whose memory reaches the start, the store's answer is passed on unchanged. For other
partitions a store gives its samples, with the orders of samples below coverage, and history gives everything before
coverage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tsdb.model.errors import OutOfCoverage, TsdbError
from tsdb.query.join.accepted_holes import AcceptedHoles
from tsdb.query.join.joined_read import JoinedRead
from tsdb.query.join.partition_join import JoinedSamples, answered_total
from tsdb.query.join.pieces import AnswerTotals, Piece, joined_pieces, merged, packed, pieces
from tsdb.query.join.step_split import StepSplit
from tsdb.query.sources import Sources, joined_warnings, request_for, stores_answering
from tsdb.query.stores.fan_out import ShareStreams, open_all
from tsdb.query.stores.hedge import Start
from tsdb.query.stores.routing import Routing, Share
from tsdb.reader.limits import SelectLimits
from tsdb.reader.read_call import Caller, ReadCall
from tsdb.reader.request import SelectSpec
from tsdb.v1 import common_pb2, reader_pb2

Response = reader_pb2.SelectResponse


@dataclass(frozen=True, slots=True)
class OpenedSelect:
    """Sources that together answer a Select. All refusals are known by now; a later failure raises from the iterators.

    alone: stores whose answers are whole. joined: partitions of other stores, ascending by store, joined with history
    when they are read. joined_states: of these partitions, with the holes of history. totals: of the answer; reading
    the joined partitions adds to it, and the trailers of `alone` are for the caller to add. warnings: of all stores.

    """

    alone: list[ShareStreams[Response]]
    joined: list[Iterator[JoinedSamples]]
    joined_states: list[common_pb2.PartitionState]
    totals: AnswerTotals
    warnings: list[str]


class SelectRead:
    """One Select. Not thread-safe: it runs on the caller's thread."""

    def __init__(
        self,
        sources: Sources,
        request: reader_pb2.SelectRequest,
        query: SelectSpec,
        limits: SelectLimits,
        caller: ReadCall,
    ) -> None:
        self._sources = sources
        self._request = _limited(request, limits)
        self._query = query
        self._limits = limits
        self._caller = caller
        self._unsplit: set[int] = set()
        history = None if sources.history is None else sources.history.store
        allow_holes = request.options.allow_holes
        self._accepted = AcceptedHoles(history, query.start_ms, query.end_ms, allow_holes=allow_holes)

    def responses(self, partitions: Sequence[int]) -> Iterator[Response]:
        """The answer. Raises the errors of stores and history, Unavailable (history_behind) and DATA_LOSS errors."""
        opened = self.open(partitions)
        if len(opened.alone) == 1 and not opened.joined:
            yield from opened.alone[0].messages()
            return
        yield from self._combined(opened)

    def open(self, partitions: Sequence[int], *, keeps: bool = False) -> OpenedSelect:
        """Begin to read. Raises as `responses`. keeps: the caller keeps all joined partitions until the end of the
        read, so that the memory of each counts until then."""
        query = self._query
        # A partial answer is memory only: the caller joins it with history itself.
        history = self._sources.history is not None and not query.partial
        routing = Routing(self._sources.stores, self._sources.topic_id, query.start_ms, history=history)
        with stores_answering(self._request, self._caller):
            opened = open_all(routing, partitions, self._start(routing), self._caller, self._handle_refusal)
        self._accepted.check(state for one in opened for first in one.first for state in first.header.partitions)
        alone = [one for one in opened if one.share.alone]
        answered_total.labels("memory").inc(sum(len(one.share.partitions) for one in alone))
        totals = AnswerTotals(self._limits)
        states, joined = self._join([one for one in opened if not one.share.alone], totals, keeps)
        warnings = joined_warnings(first.header for one in opened for first in one.first)
        return OpenedSelect(alone, joined, states, totals, warnings)

    def _join(
        self, opened: list[ShareStreams[Response]], totals: AnswerTotals, keeps: bool
    ) -> tuple[list[common_pb2.PartitionState], list[Iterator[JoinedSamples]]]:
        if not opened:
            return [], []
        assert self._sources.history is not None, "only a querier with a history joins"
        allow_holes = self._request.options.allow_holes
        read = JoinedRead(
            self._sources.history, self._query, totals, self._caller, allow_holes=allow_holes, keeps=keeps
        )
        states, joined = read.open(opened)
        return list(states.values()), joined

    def _combined(self, opened: OpenedSelect) -> Iterator[Response]:
        states = [state for one in opened.alone for state in one.first[0].header.partitions] + opened.joined_states
        parts: list[Iterator[Piece]] = [pieces(one.messages(), opened.totals) for one in opened.alone]
        parts += [joined_pieces(joined, self._query) for joined in opened.joined]
        yield from packed(states, opened.warnings, merged(parts), opened.totals)

    def _start(self, routing: Routing) -> Start[Response]:
        def start(share: Share, caller: Caller) -> Sequence[Iterator[Response]]:
            request = self._accepted.apply(request_for(self._request, share), share)
            if share.alone:
                return [share.store.select(request, caller)]
            split = self._split(share, [routing.state(share, partition) for partition in share.partitions])
            return [share.store.select(part, caller) for part in split.requests(request)]

        return start

    def _split(self, share: Share, states: Sequence[common_pb2.PartitionState]) -> StepSplit:
        if self._unsplit.isdisjoint(share.partitions):
            return StepSplit.of(self._query, states)
        return StepSplit(None)

    def _handle_refusal(self, share: Share, error: TsdbError) -> bool:
        """Whether to send the request to the same store again."""
        if self._accepted.handle_refusal(share, error):
            return True
        if share.alone or not isinstance(error, OutOfCoverage):
            return False
        # Coverage moved past the split of the share's steps: the next request is for all samples, without a split.
        self._unsplit.update(share.partitions)
        return True


def _limited(request: reader_pb2.SelectRequest, limits: SelectLimits) -> reader_pb2.SelectRequest:
    """The request with the limits of the whole answer, which each store applies to its part too."""
    limited = reader_pb2.SelectRequest()
    limited.CopyFrom(request)
    limited.series_max, limited.samples_max, limited.bytes_max = (
        limits.series_max,
        limits.samples_max,
        limits.bytes_max,
    )
    return limited
