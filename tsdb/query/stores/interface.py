"""Stores: the memory side of a querier. Each answers reads over some partitions, in this process or behind gRPC.

Every method raises only errors of tsdb.model.errors, for local and for remote stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tsdb.answer.answer import Answer, ExemplarsAnswer, LabelsAnswer, SeriesAnswer, WatchAnswer
from tsdb.answer.spec import ExemplarsSpec, LabelsSpec, SelectSpec, SeriesSpec, WatchSpec
from tsdb.answer.state import MemoryState
from tsdb.reader.read_call import Caller, ReadCall
from tsdb.v1 import reader_pb2


class StoreReader(Protocol):
    """One store. Streams may begin before they are iterated; closing a stream ends it. caller: a read of this process.
    Its calls to the store end with it.
    """

    @property
    def name(self) -> str:
        """Address of the store in messages. It is unique within a querier."""

    def states(self) -> Mapping[int, MemoryState]:
        """The last known states of the store by partition. Empty while the store does not answer."""

    @property
    def apart(self) -> bool:
        """Whether the store answers but gets no reads, because it belongs to another experiment or to production."""

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

    def select(self, spec: SelectSpec, caller: Caller) -> Iterator[Answer]:
        """The answers to a select: the first with the states, the last with the counts, checked as they come."""

    def series(self, spec: SeriesSpec, caller: Caller) -> Iterator[SeriesAnswer]:
        """States, then series or groups."""

    def labels(self, spec: LabelsSpec, caller: Caller) -> Iterator[LabelsAnswer]:
        """Exactly one answer about all partitions of the store."""

    def exemplars(self, spec: ExemplarsSpec, caller: Caller) -> Iterator[ExemplarsAnswer]:
        """States, then the exemplars of some series each."""

    def cardinality(
        self, request: reader_pb2.CardinalityRequest, caller: Caller
    ) -> Iterator[reader_pb2.CardinalityResponse]:
        """The one response of Reader.Cardinality."""

    def watch(self, spec: WatchSpec, caller: Caller) -> Iterator[WatchAnswer]:
        """Live samples until the caller leaves."""


class InProcessStore(Protocol):
    """The store of this process: its reads are calls, and nothing lies between. Raises as a StoreReader."""

    @property
    def topic_id(self) -> str: ...

    @property
    def partitions(self) -> Mapping[int, object]:
        """The partitions of the store, which never change."""

    def select(self, spec: SelectSpec, call: ReadCall) -> Answer:
        """The whole answer of memory."""

    def is_small(self, spec: SelectSpec) -> bool:
        """Whether a select begins without a wait and finds its series at once."""

    def labels(self, spec: LabelsSpec, call: ReadCall) -> LabelsAnswer:
        """The whole answer of memory."""


class Stores(Protocol):
    """The current set of stores."""

    @property
    def in_process(self) -> InProcessStore | None:
        """The only store, when it is of this process; else None."""

    def all(self) -> Sequence[StoreReader]:
        """All known stores, also those that do not answer."""

    def refresh(self, timeout_s: float) -> None:
        """Update the states of all stores now."""

    def away(self) -> Sequence[tuple[str, str]]:
        """(address, error) of stores that do not answer, and of names that do not resolve."""
