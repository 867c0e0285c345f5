"""Local store: reads the store of this process directly, not over a network."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import cast

import grpc

from tsdb.model.clock import Clock
from tsdb.query.stores.interface import StoreReader
from tsdb.reader.read_call import Caller
from tsdb.store.service import ReaderService
from tsdb.v1 import common_pb2, reader_pb2

STATES_AGE_S = 0.1  # States only choose the route: a store that has changed since refuses, and routing chooses again.


class LocalStore:
    """A StoreReader over the Reader service of a store. Thread-safe."""

    def __init__(self, service: ReaderService, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._states: dict[int, common_pb2.PartitionState] = {}
        self._refreshed_at: float | None = None

    @property
    def name(self) -> str:
        return "local"

    def states(self) -> Mapping[int, common_pb2.PartitionState]:
        with self._lock:
            refreshed_at = self._refreshed_at
        if refreshed_at is None or self._clock.monotonic() - refreshed_at > STATES_AGE_S:
            self.refresh(0.0)
        with self._lock:
            return self._states

    @property
    def apart(self) -> bool:
        return False

    @property
    def may_be_silent(self) -> bool:
        return False

    @property
    def is_suspect(self) -> bool:
        return False

    def suspect(self) -> None:
        raise AssertionError("a store of this process is not hedged")

    def refresh(self, timeout_s: float) -> None:
        answer = self._service.Coverage(reader_pb2.CoverageRequest(), _context(None))
        with self._lock:
            self._states = {state.partition: state for state in answer.partitions}
            self._refreshed_at = self._clock.monotonic()

    def select(self, request: reader_pb2.SelectRequest, caller: Caller) -> Iterator[reader_pb2.SelectResponse]:
        with closing(self._service.Select(request, _context(caller))) as messages:
            for message in messages:
                yield reader_pb2.SelectResponse.FromString(message)

    def series(self, request: reader_pb2.SeriesRequest, caller: Caller) -> Iterator[reader_pb2.SeriesResponse]:
        return self._service.Series(request, _context(caller))

    def label_names(
        self, request: reader_pb2.LabelNamesRequest, caller: Caller
    ) -> Iterator[reader_pb2.LabelNamesResponse]:
        yield self._service.LabelNames(request, _context(caller))

    def label_values(
        self, request: reader_pb2.LabelValuesRequest, caller: Caller
    ) -> Iterator[reader_pb2.LabelValuesResponse]:
        yield self._service.LabelValues(request, _context(caller))

    def cardinality(
        self, request: reader_pb2.CardinalityRequest, caller: Caller
    ) -> Iterator[reader_pb2.CardinalityResponse]:
        yield self._service.Cardinality(request, _context(caller))

    def watch(self, request: reader_pb2.WatchRequest, caller: Caller) -> Iterator[reader_pb2.WatchResponse]:
        return self._service.Watch(request, _context(caller))


class OneStore:
    """The Stores of a process with one local store."""

    def __init__(self, store: StoreReader) -> None:
        self._all = (store,)

    def all(self) -> Sequence[StoreReader]:
        return self._all

    def refresh(self, timeout_s: float) -> None:
        for store in self._all:
            store.refresh(timeout_s)

    def away(self) -> Sequence[tuple[str, str]]:
        return ()


def _context(caller: Caller | None) -> grpc.ServicerContext:
    # The store's service uses only the methods of Caller on its context.
    return cast(grpc.ServicerContext, caller)
