"""Series over stores and history: finds matching series with their first and last sample times in memory, or group
counts."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.client.wire import I64, U64, block_labels, unpack
from tsdb.model.errors import CorruptData
from tsdb.model.labels import parse_labels
from tsdb.query.history.index import NO_SERIES, Choice, HistorySeries
from tsdb.query.join.accepted_holes import AcceptedHoles
from tsdb.query.join.history_series import history_series
from tsdb.query.sources import Sources, joined_warnings, request_for, stores_answering
from tsdb.query.stores.fan_out import ShareStreams, open_all
from tsdb.query.stores.routing import NO_START_MS, Routing, Share
from tsdb.reader.frames import series_block
from tsdb.reader.limits import SelectLimits
from tsdb.reader.read_call import Caller, ReadCall
from tsdb.reader.request import SeriesSpec
from tsdb.v1 import common_pb2, reader_pb2

Response = reader_pb2.SeriesResponse

JOIN_COPIES = 3
# Values on the wire for a series without a sample in memory.
NEVER_FIRST_MS, NEVER_LAST_MS = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class SeriesTimes:
    """Series of one partition, ascending by id: labels, canonical; first_ms, last_ms: int64, sample times in memory."""

    series_ids: NDArray[np.uint64]
    labels: list[bytes]
    first_ms: NDArray[np.int64]
    last_ms: NDArray[np.int64]

    @classmethod
    def of(cls, block: common_pb2.SeriesBlock) -> SeriesTimes:
        """Raises CorruptData (answer_malformed)."""
        ids = unpack(block.series_ids, U64, "series_ids")
        first = unpack(block.first_seen_ms, I64, "first_seen_ms", len(ids))
        last = unpack(block.last_seen_ms, I64, "last_seen_ms", len(ids))
        return cls(ids, block_labels(block, len(ids)), first, last)

    def within(self, start_ms: int, end_ms: int) -> SeriesTimes:
        """The series that may have samples in memory in [start_ms, end_ms)."""
        kept = np.flatnonzero((self.last_ms >= start_ms) & (self.first_ms < end_ms))
        labels = [self.labels[index] for index in kept.tolist()]
        return SeriesTimes(self.series_ids[kept], labels, self.first_ms[kept], self.last_ms[kept])

    def with_history(self, history: HistorySeries) -> SeriesTimes:
        """Add the series of history. Their first and last sample times are not known here."""
        fresh = np.flatnonzero(~np.isin(history.series_ids, self.series_ids))
        ids = np.concatenate([self.series_ids, history.series_ids[fresh]])
        labels = self.labels + [history.labels[index] for index in fresh.tolist()]
        first = np.concatenate([self.first_ms, np.full(len(fresh), NEVER_FIRST_MS)])
        last = np.concatenate([self.last_ms, np.full(len(fresh), NEVER_LAST_MS)])
        order = np.argsort(ids)
        return SeriesTimes(ids[order], [labels[index] for index in order.tolist()], first[order], last[order])

    def block(self, partition: int) -> common_pb2.SeriesBlock:
        lengths = np.fromiter(map(len, self.labels), np.uint32, len(self.labels))
        block = series_block(partition, self.series_ids, (b"".join(self.labels), lengths))
        block.first_seen_ms, block.last_seen_ms = self.first_ms.tobytes(), self.last_ms.tobytes()
        return block


class SeriesRead:
    """One Series call. Not thread-safe: it runs on the caller's thread."""

    def __init__(
        self,
        sources: Sources,
        request: reader_pb2.SeriesRequest,
        query: SeriesSpec,
        limits: SelectLimits,
        caller: ReadCall,
    ) -> None:
        self._sources = sources
        self._request = reader_pb2.SeriesRequest()
        self._request.CopyFrom(request)
        self._request.series_max = limits.series_max
        self._query = query
        self._limits = limits
        self._caller = caller
        self._bytes = 0
        history = None if sources.history is None else sources.history.store
        allow_holes = request.options.allow_holes
        self._accepted = AcceptedHoles(history, query.start_ms, query.end_ms, allow_holes=allow_holes)

    def responses(self, partitions: Sequence[int]) -> Iterator[Response]:
        """The answer. Raises the errors of Select."""
        query, sources = self._query, self._sources
        # Without a start the answer is all that memory holds.
        history = sources.history is not None and query.start_given
        start_ms = query.start_ms if query.start_given else NO_START_MS
        routing = Routing(sources.stores, sources.topic_id, start_ms, history=history)
        with stores_answering(self._request, self._caller):
            opened = open_all(routing, partitions, self._start, self._caller, self._accepted.handle_refusal)
        self._accepted.check(state for one in opened for state in one.first[0].header.partitions)
        if len(opened) == 1 and opened[0].share.alone:
            yield from opened[0].messages()
            return
        yield from self._whole(opened)

    def _start(self, share: Share, caller: Caller) -> Sequence[Iterator[Response]]:
        request = self._accepted.apply(request_for(self._request, share), share)
        if not share.alone:
            # All series: they are joined with history first, then cut to the range and counted.
            request.partial = True
            del request.group_by[:]
        return [share.store.series(request, caller)]

    def _whole(self, opened: list[ShareStreams[Response]]) -> Iterator[Response]:
        states = {state.partition: state for one in opened for state in one.first[0].header.partitions}
        answers = [(one.share, list(self._held(one.rest[0]))) for one in opened]
        joined = {p: states[p] for share, _ in answers if not share.alone for p in share.partitions}
        history = self._history_series(joined)
        blocks, tally = {}, Tally[tuple[str, ...]]()
        for share, messages in answers:
            tally.update(_groups(messages))
            for block in (message.series for message in messages if message.HasField("series")):
                if share.alone:
                    blocks[block.partition] = block
                    continue
                times = SeriesTimes.of(block).within(self._query.start_ms, self._query.end_ms)
                times = times.with_history(history.get(block.partition, NO_SERIES))
                tally.update(_counted(times.labels, self._query.group_by))
                blocks[block.partition] = times.block(block.partition)
        warnings = joined_warnings(one.first[0].header for one in opened)
        yield Response(
            header=reader_pb2.SelectHeader(partitions=[states[p] for p in sorted(states)], warnings=warnings)
        )
        if self._query.group_by:
            yield Response(groups=_message(tally))
            return
        if blocks.keys() != states.keys():
            raise CorruptData(f"series of partitions {sorted(states.keys() - blocks.keys())} did not come")
        self._limits.check_series(sum(len(block.series_ids) // 8 for block in blocks.values()))
        for partition in sorted(blocks):
            yield Response(series=blocks[partition])

    def _held(self, messages: Iterable[Response]) -> Iterator[Response]:
        """Pass messages on and reserve memory for them: they stay until the answer is complete, parsed and rebuilt."""
        for message in messages:
            self._caller.check_going()
            self._bytes += JOIN_COPIES * message.ByteSize()
            self._caller.hold(self._bytes)
            yield message

    def _history_series(self, joined: dict[int, common_pb2.PartitionState]) -> dict[int, HistorySeries]:
        if not joined:
            return {}
        assert self._sources.history is not None, "only a querier with a history joins"
        query = self._query
        allow_holes = self._request.options.allow_holes
        choice = Choice(query.matchers)
        return history_series(
            self._sources.history,
            joined,
            choice,
            query.start_ms,
            query.end_ms,
            allow_holes=allow_holes,
            check_going=self._caller.check_going,
        )


def _groups(messages: Iterable[Response]) -> dict[tuple[str, ...], int]:
    return {tuple(group.values): group.series for message in messages for group in message.groups.groups}


def _counted(labels: Iterable[bytes], names: Sequence[str]) -> Tally[tuple[str, ...]]:
    tally: Tally[tuple[str, ...]] = Tally()
    for canonical in labels if names else ():
        values = dict(parse_labels(canonical))
        tally[tuple(values.get(name, "") for name in names)] += 1
    return tally


def _message(tally: Tally[tuple[str, ...]]) -> reader_pb2.SeriesGroups:
    groups = [reader_pb2.SeriesGroups.Group(values=values, series=count) for values, count in sorted(tally.items())]
    return reader_pb2.SeriesGroups(groups=groups)
