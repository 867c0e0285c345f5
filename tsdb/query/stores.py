"""Stores: the memory side of a querier. Each is a Reader service over some partitions, in this process or behind gRPC.

Every method raises errors of tsdb.model.errors only, whichever side of a network the store is on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tsdb.store.read_call import Caller
from tsdb.v1 import common_pb2, reader_pb2


class StoreReader(Protocol):
    """One store. Streams may begin before they are iterated; closing one ends it."""

    @property
    def name(self) -> str:
        """Where it is, for messages; no two stores of a querier share one."""

    def states(self) -> Mapping[int, common_pb2.PartitionState]:
        """What it holds, by partition, as it said lately; empty while it does not answer."""

    def refresh(self, timeout_s: float) -> None:
        """Ask it now, so that `states` is of this moment; one that does not answer in time has none."""

    def select(self, request: reader_pb2.SelectRequest, caller: Caller) -> Iterator[reader_pb2.SelectResponse]:
        """As Reader.Select."""

    def series(self, request: reader_pb2.SeriesRequest, caller: Caller) -> Iterator[reader_pb2.SeriesResponse]:
        """As Reader.Series."""

    def label_names(
        self, request: reader_pb2.LabelNamesRequest, caller: Caller
    ) -> Iterator[reader_pb2.LabelNamesResponse]:
        """As Reader.LabelNames: one answer."""

    def label_values(
        self, request: reader_pb2.LabelValuesRequest, caller: Caller
    ) -> Iterator[reader_pb2.LabelValuesResponse]:
        """As Reader.LabelValues: one answer."""

    def watch(self, request: reader_pb2.WatchRequest, caller: Caller) -> Iterator[reader_pb2.WatchResponse]:
        """As Reader.Watch."""


class Stores(Protocol):
    """The stores there are now."""

    def all(self) -> Sequence[StoreReader]:
        """Those that are known, whether they answer or not."""

    def refresh(self, timeout_s: float) -> None:
        """Ask all of them now what they hold."""
