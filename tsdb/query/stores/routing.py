"""Routing: chooses the store for each partition of one request, and the next store when one does not answer.

Stores that answer come first, then ready stores, then stores whose memory reaches the start, then stores with less lag;
equal stores take turns. The states of a store may be up to a second old. A store whose coverage has moved since then
refuses; the request then goes to the next store, or to the same store joined with history.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tsdb.answer.state import MemoryState
from tsdb.model.errors import InvalidRequest, OutOfCoverage, TsdbError, Unavailable, worth_retrying
from tsdb.ops.metrics import counter
from tsdb.query.stores.interface import StoreReader, Stores

LAG_STEP_MS = 1000  # Stores that differ by less take turns.
NO_START_MS = (1 << 63) - 1  # Stands for a request without a start, whose answer has everything in memory.

next_store_total = counter("tsdb_query_next_store_total", "Reads passed on to the next store, by reason.", "reason")

_turns = itertools.count()

Found = tuple[StoreReader, MemoryState]


@dataclass(frozen=True, slots=True)
class Share:
    """One store's part of a request. partitions: ascending. alone: whether the store's answer is the whole answer;
    otherwise it is joined with history."""

    store: StoreReader
    partitions: tuple[int, ...]
    alone: bool


class Routing:
    """The choices of stores for one request. Not thread-safe: a request has one thread."""

    def __init__(self, stores: Stores, topic_id: str, start_ms: int, *, history: bool) -> None:
        known = list(stores.all())
        turn = next(_turns) % len(known) if known else 0
        self._topic_id = topic_id
        self._start_ms = start_ms
        self._history = history
        self._stores = [(store, store.states()) for store in known[turn:] + known[:turn]]
        self._refused: dict[int, set[str]] = {}
        self._joined: set[int] = set()
        self._errors: dict[int, TsdbError] = {}

    def shares(self, partitions: Iterable[int]) -> list[Share]:
        """The next choice for these partitions. Raises the last store's error, or Unavailable (no_store)."""
        chosen: dict[tuple[str, bool], tuple[StoreReader, list[int]]] = {}
        for partition in sorted(partitions):
            found = self._found(partition)
            if not found:
                raise self._errors.get(partition) or self._no_store_error(partition)
            store, alone = self._best(partition, found)
            chosen.setdefault((store.name, alone), (store, []))[1].append(partition)
        return [Share(store, tuple(mine), alone) for (_, alone), (store, mine) in chosen.items()]

    def alternatives(self, share: Share) -> list[Share]:
        """Shares of other stores that together have the partitions of a share, for a hedge; empty when partitions would
        be missing, or when the store of the share cannot be silent."""
        if not share.store.may_be_silent:
            return []
        chosen: dict[tuple[str, bool], tuple[StoreReader, list[int]]] = {}
        for partition in share.partitions:
            found = self._found(partition, share.store.name)
            if not found:
                return []
            store, alone = self._best(partition, found)
            chosen.setdefault((store.name, alone), (store, []))[1].append(partition)
        return [Share(store, tuple(mine), alone) for (_, alone), (store, mine) in chosen.items()]

    def state(self, share: Share, partition: int) -> MemoryState:
        """The state of a partition in the store of a share."""
        return next(states[partition] for store, states in self._stores if store.name == share.store.name)

    def refused(self, share: Share, error: TsdbError) -> None:
        """Record a refusal: `shares` then chooses the next store, or the same store joined with history. Raises `error`
        when neither would help."""
        if isinstance(error, OutOfCoverage) and share.alone:
            if self._history:
                self._joined.update(share.partitions)
                return
        elif not _passes(error):
            raise error
        next_store_total.labels(error.reason).inc()
        for partition in share.partitions:
            self._refused.setdefault(partition, set()).add(share.store.name)
            self._errors[partition] = error

    def _found(self, partition: int, besides: str = "") -> list[Found]:
        """The stores with this partition that have not refused, without the one with the name `besides`."""
        refused = self._refused.get(partition, ())
        found: list[Found] = []
        for store, states in self._stores:
            state = states.get(partition)
            if state is not None and state.topic_id == self._topic_id and store.name not in (besides, *refused):
                found.append((store, state))
        return found

    def _best(self, partition: int, found: list[Found]) -> tuple[StoreReader, bool]:
        store, state = found[0] if len(found) == 1 else min(found, key=self._rank)
        alone = not self._history or (state.reaches(self._start_ms) and partition not in self._joined)
        return store, alone

    def _rank(self, found: Found) -> tuple[bool, bool, bool, int, int]:
        store, state = found
        reaches = state.reaches(self._start_ms)
        # Of the stores that do not reach the start, the deepest one needs the least history.
        depth = 0 if reaches else state.coverage_start_ms
        return store.is_suspect, not state.ready, not reaches, depth, state.lag_ms // LAG_STEP_MS

    def _no_store_error(self, partition: int) -> Unavailable:
        others = _other_topics(self._stores, partition, self._topic_id)
        if others:
            return Unavailable(
                f"partition {partition}: the stores hold log topic {', '.join(others)}; this querier reads topic"
                f" {self._topic_id}",
                reason="other_topic",
                retry_after_s=1.0,
                partition=partition,
            )
        apart = sum(store.apart for store, _ in self._stores)
        others_are = f", {apart} of them of another experiment than this querier" if apart else ""
        return Unavailable(
            f"no store that answers holds partition {partition}; {len(self._stores)} stores are known{others_are}",
            reason="no_store",
            retry_after_s=1.0,
            partition=partition,
        )


def best_states(stores: Stores, topic_id: str, partitions: Iterable[int]) -> list[MemoryState]:
    """The state of the store that a read would choose now, for each partition with an answering store."""
    routing = Routing(stores, topic_id, NO_START_MS, history=False)
    states = []
    for partition in partitions:
        try:
            share = routing.shares([partition])[0]
        except Unavailable:
            continue
        states.append(routing.state(share, partition))
    return states


def _passes(error: TsdbError) -> bool:
    """Whether another store may answer after this error."""
    # The partitions exist: bad_partition means that the store's assignment has changed since.
    return worth_retrying(error) or (isinstance(error, InvalidRequest) and error.reason == "bad_partition")


def _other_topics(
    stores: Sequence[tuple[StoreReader, Mapping[int, MemoryState]]], partition: int, topic_id: str
) -> list[str]:
    seen = {states[partition].topic_id for _, states in stores if partition in states}
    return sorted(seen - {topic_id})
