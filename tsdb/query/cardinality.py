"""Cardinality over stores: each partition is counted by one store, and groups of several stores are merged by hash.

Memory alone is counted: history has no cost by series that a limit could help.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.query.sources import Sources, joined_warnings, stores_answering
from tsdb.query.stores.fan_out import open_all
from tsdb.query.stores.routing import NO_START_MS, Routing, Share
from tsdb.reader.cardinality import (
    GROUP_BYTES,
    CardinalitySpec,
    Ranking,
    answer,
    combined,
    new_seed,
    parts_from_wire,
    parts_to_wire,
    ranking,
)
from tsdb.reader.read_call import Caller, ReadCall
from tsdb.v1 import reader_pb2
from tsdb.wire.state import decode_options

Response = reader_pb2.CardinalityResponse


class CardinalityRead:
    """One Cardinality call. Not thread-safe: it runs on the caller's thread."""

    def __init__(
        self, sources: Sources, request: reader_pb2.CardinalityRequest, query: CardinalitySpec, caller: ReadCall
    ) -> None:
        self._sources = sources
        self._request = request
        self._query = query
        self._seed = query.seed or new_seed()
        self._caller = caller

    def response(self, partitions: Sequence[int]) -> Response:
        """Raises as LabelValues, and Overloaded (groups_limit)."""
        found = self._ask(partitions, None)
        if len(found) == 1 and not found[0].HasField("parts"):
            return found[0]  # One store has all partitions.
        parts = [parts_from_wire(one.parts, self._query.by) for one in found]
        self._caller.hold(GROUP_BYTES * sum(len(part.hashes) for part in parts))
        groups = combined(parts)
        states = sorted((state for one in found for state in one.header.partitions), key=lambda state: state.partition)
        warnings = joined_warnings([one.header.warnings for one in found])
        header = reader_pb2.SelectHeader(partitions=states, warnings=warnings)
        response = Response(header=header, series=sum(one.series for one in found))
        if self._query.seed and self._query.hashes is None:
            response.parts.CopyFrom(parts_to_wire(groups))
            return response
        ranked = ranking(groups, sum(max(0, one.parts.omitted_below - 1) for one in found))
        wanted = self._query.hashes
        chosen = ranked.hashes[ranked.candidates(self._query.top)] if wanted is None else wanted
        total = None if ranked.slack else len(ranked.hashes)
        answer(response, self._named(partitions, ranked, chosen), self._query, total)
        return response

    def _ask(self, partitions: Sequence[int], hashes: NDArray[np.uint64] | None) -> list[Response]:
        """Query stores that together have all partitions. A store with all of them gets the request unchanged."""

        def start(share: Share, caller: Caller) -> Sequence[Iterator[Response]]:
            request = self._part(share)
            if hashes is not None or set(share.partitions) != set(partitions):
                request.hash_seed = self._seed
                request.hashes = b"" if hashes is None else hashes.astype("<u8").tobytes()
            return [share.store.cardinality(request, caller)]

        routing = Routing(self._sources.stores, self._sources.topic_id, NO_START_MS, history=False)
        with stores_answering(decode_options(self._request.options), self._caller):
            return [one.first[0] for one in open_all(routing, partitions, start, self._caller)]

    def _part(self, share: Share) -> reader_pb2.CardinalityRequest:
        """The request for one share: its partitions, and only their tokens."""
        part = reader_pb2.CardinalityRequest()
        part.CopyFrom(self._request)
        del part.options.partitions[:], part.options.after[:]
        part.options.partitions.extend(share.partitions)
        part.options.after.extend(one for one in self._request.options.after if one.partition in share.partitions)
        return part

    def _named(
        self, partitions: Sequence[int], ranked: Ranking, chosen: NDArray[np.uint64]
    ) -> list[reader_pb2.CardinalityGroup]:
        """The chosen groups. Their counts are those of `ranked`, or counted again where it left some series out."""
        again: dict[int, reader_pb2.CardinalityGroup] = {}
        for one in self._ask(partitions, chosen):
            for group in one.groups:
                kept = again.setdefault(group.hash, reader_pb2.CardinalityGroup(labels=group.labels, hash=group.hash))
                kept.series += group.series
        if not ranked.slack:
            for place in ranked.places_of(chosen).tolist():
                kept_group = again.get(int(ranked.hashes[place]))
                if kept_group is not None:
                    kept_group.series, kept_group.values = int(ranked.series[place]), int(ranked.values[place])
        return list(again.values())
