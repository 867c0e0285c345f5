"""Select over stores and history: exact or an error, wherever the samples are.

Memory first. For a partition whose memory reaches the start, the store's answer is passed on unchanged. For other
partitions a store gives its samples, with the orders of samples below coverage, and history gives everything before
coverage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tsdb.model.errors import OutOfCoverage, TsdbError
from tsdb.query.join.accepted_holes import AcceptedHoles
from tsdb.query.join.joined_read import JoinedRead
from tsdb.query.join.partition_join import answered_total
from tsdb.query.join.pieces import AnswerTotals, Piece, merged, packed, pieces
from tsdb.query.join.step_split import StepSplit
from tsdb.query.sources import Sources, request_for, stores_answering
from tsdb.query.stores.fan_out import ShareStreams, open_all
from tsdb.query.stores.routing import Routing, Share
from tsdb.reader.limits import SelectLimits
from tsdb.reader.read_call import ReadCall
from tsdb.reader.request import SelectSpec
from tsdb.v1 import common_pb2, reader_pb2

Response = reader_pb2.SelectResponse


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
        query = self._query
        # A partial answer is memory only: the caller joins it with history itself.
        history = self._sources.history is not None and not query.partial
        routing = Routing(self._sources.stores, self._sources.topic_id, query.start_ms, history=history)
        with stores_answering(self._request, self._caller):
            opened = open_all(routing, partitions, self._start(routing), self._handle_refusal)
        self._accepted.check(state for one in opened for first in one.first for state in first.header.partitions)
        alone = [one for one in opened if one.share.alone]
        answered_total.labels("memory").inc(sum(len(one.share.partitions) for one in alone))
        if len(opened) == len(alone) == 1:
            yield from alone[0].messages()
            return
        yield from self._joined(alone, [one for one in opened if not one.share.alone])

    def _joined(self, alone: list[ShareStreams[Response]], others: list[ShareStreams[Response]]) -> Iterator[Response]:
        totals = AnswerTotals(self._limits)
        states = [state for one in alone for state in one.first[0].header.partitions]
        parts: list[Iterator[Piece]] = [pieces(one.messages(), totals) for one in alone]
        if others:
            assert self._sources.history is not None, "only a querier with a history joins"
            allow_holes = self._request.options.allow_holes
            read = JoinedRead(self._sources.history, self._query, totals, self._caller, allow_holes=allow_holes)
            joined_states, joined_parts = read.open(others)
            states += joined_states.values()
            parts += joined_parts
        yield from packed(states, merged(parts), totals)

    def _start(self, routing: Routing) -> Callable[[Share], Sequence[Iterator[Response]]]:
        def start(share: Share) -> Sequence[Iterator[Response]]:
            request = self._accepted.apply(request_for(self._request, share), share)
            if share.alone:
                return [share.store.select(request, self._caller)]
            split = self._split(share, [routing.state(share, partition) for partition in share.partitions])
            return [share.store.select(part, self._caller) for part in split.requests(request)]

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
