"""Stores: the memory side of a querier. Each is a Reader service over some partitions, in this process or behind gRPC.

Every method raises only errors of tsdb.model.errors, for local and for remote stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tsdb.reader.read_call import Caller
from tsdb.v1 import common_pb2, reader_pb2


class StoreReader(Protocol):
    """One store. Streams may begin before they are iterated; closing a stream ends it."""

    @property
    def name(self) -> str:
        """Address of the store, for messages; unique within a querier."""

    def states(self) -> Mapping[int, common_pb2.PartitionState]:
        """Last known states of the store by partition; empty while it does not answer."""

    @property
    def apart(self) -> bool:
        """Whether it answers and is not read, because it belongs to another experiment, or to production."""

    @property
    def may_be_silent(self) -> bool:
        """Whether it is another process, which may freeze: another store is then asked too."""

    @property
    def is_suspect(self) -> bool:
        """Whether another store has answered in its place since its own last answer."""

    def suspect(self) -> None:
        """Record that another store has answered in its place. Any thread may call it."""

    def refresh(self, timeout_s: float) -> None:
        """Update `states` now. A store that does not answer in time has no states."""

    def select(self, request: reader_pb2.SelectRequest, caller: Caller) -> Iterator[reader_pb2.SelectResponse]:
        """The response stream of Reader.Select."""

    def series(self, request: reader_pb2.SeriesRequest, caller: Caller) -> Iterator[reader_pb2.SeriesResponse]:
        """The response stream of Reader.Series."""

    def label_names(
        self, request: reader_pb2.LabelNamesRequest, caller: Caller
    ) -> Iterator[reader_pb2.LabelNamesResponse]:
        """The one response of Reader.LabelNames."""

    def label_values(
        self, request: reader_pb2.LabelValuesRequest, caller: Caller
    ) -> Iterator[reader_pb2.LabelValuesResponse]:
        """The one response of Reader.LabelValues."""

    def cardinality(
        self, request: reader_pb2.CardinalityRequest, caller: Caller
    ) -> Iterator[reader_pb2.CardinalityResponse]:
        """The one response of Reader.Cardinality."""

    def watch(self, request: reader_pb2.WatchRequest, caller: Caller) -> Iterator[reader_pb2.WatchResponse]:
        """The response stream of Reader.Watch."""


class Stores(Protocol):
    """The current set of stores."""

    def all(self) -> Sequence[StoreReader]:
        """All known stores, also those that do not answer."""

    def refresh(self, timeout_s: float) -> None:
        """Update the states of all stores now."""

    def away(self) -> Sequence[tuple[str, str]]:
        """(address, error) of stores that do not answer, and of names that do not resolve."""
