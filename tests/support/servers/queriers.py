"""Queriers for tests: over heads of this process, called as a server would, without a network or a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import grpc

from tsdb.client import ReadOptions, SelectQuery, SelectResult
from tsdb.head.head import Head
from tsdb.history.interface import HistoryReads, IndexVersions
from tsdb.model.clock import ManualClock
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.query.history.downsampled import Resolutions
from tsdb.query.history.index import Generation, HistoryIndex
from tsdb.query.promql.storage import QuerierStorage
from tsdb.query.service import QuerierService
from tsdb.query.sources import HistorySource, Sources
from tsdb.query.stores.interface import Stores
from tsdb.query.stores.local import LocalStore, OneStore
from tsdb.reader.read_call import Caller, ReadCalls, SelectLimits
from tsdb.replay.replay import PartitionProgress
from tsdb.selector.selectors import parse_selector
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition
from tsdb.store.readiness import ReadinessEvaluator
from tsdb.store.reads import StoreReads
from tsdb.store.service import ReaderService
from tsdb.v1 import reader_pb2

TOPIC_ID = "topic"


class Context:
    """A caller with some time left; it is active until `leave`."""

    def __init__(self, remaining_s: float | None = None) -> None:
        self.remaining_s = remaining_s
        self.active = True
        self.callbacks: list[Callable[[], None]] = []
        self._called = threading.Event()

    def time_remaining(self) -> float | None:
        return self.remaining_s

    def is_active(self) -> bool:
        return self.active

    def peer(self) -> str:
        return "test:1"

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self.callbacks.append(callback)
        self._called.set()
        return self.active

    def wait_called(self, within_s: float) -> None:
        """Wait until a call that ends with this caller has begun."""
        assert self._called.wait(within_s), "nobody was called"

    def leave(self) -> None:
        """End the caller: its callbacks run."""
        self.active = False
        for callback in self.callbacks:
            callback()


def context(remaining_s: float | None = None) -> grpc.ServicerContext:
    """A caller typed as a servicer's context."""
    return cast(grpc.ServicerContext, Context(remaining_s))


class ServedHeads:
    """The Reader service of a store over these heads, caught up with a log that ends where they do."""

    def __init__(
        self,
        heads: Mapping[int, Head],
        *,
        topic_id: str = TOPIC_ID,
        limits: SelectLimits | None = None,
        calls: ReadCalls | None = None,
        refresh: Callable[[float], None] = lambda within_s: None,
    ) -> None:
        """refresh: fetches high watermarks for bounded reads, as of StoreReads."""
        self.clock = ManualClock(1 << 40)
        self.partitions = {number: self._partition(number, head, topic_id) for number, head in heads.items()}
        self.applied = AppliedSignal(self.clock)
        reads = StoreReads(topic_id, self.partitions, self.applied, limits or SelectLimits(), refresh=refresh)
        self.service = ReaderService(reads, calls)
        self.store = LocalStore(reads, self.clock, calls)

    def end(self) -> None:
        """End like a store: waiting reads are refused."""
        self.applied.close()

    def catch_up(self) -> None:
        """Move the end of the log to the applied records."""
        for partition in self.partitions.values():
            partition.progress.next_offset = partition.head.next_offset
            partition.observe_high_watermark(partition.head.next_offset, self.clock.monotonic())
        self.clock.advance(1000)  # Cached states are out of date now.

    def _partition(self, number: int, head: Head, topic_id: str) -> Partition:
        progress = PartitionProgress(head.next_offset)
        partition = Partition(number, topic_id, head, progress, ReadinessEvaluator(), self.clock)
        partition.observe_high_watermark(head.next_offset, self.clock.monotonic())
        return partition


def sources_over(
    stores: Stores,
    history: HistoryReads | None,
    *,
    window_ms: int,
    partitions: int = 1,
    topic_id: str = TOPIC_ID,
    generation: Generation = lambda: 0,
    resolutions: Resolutions | None = None,
) -> Sources:
    """The sources of a querier. generation: see HistoryIndex."""
    if isinstance(history, IndexVersions):
        generation = history.index_version
    index = None if history is None else HistoryIndex(history, generation)
    past = None if history is None or index is None else HistorySource(history, index, window_ms, resolutions)
    return Sources(stores, topic_id, range(partitions), past)


def querier_over(
    stores: Stores,
    history: HistoryReads | None,
    *,
    window_ms: int,
    partitions: int = 1,
    topic_id: str = TOPIC_ID,
    limits: SelectLimits | None = None,
    calls: ReadCalls | None = None,
    generation: Generation = lambda: 0,
    resolutions: Resolutions | None = None,
) -> QuerierService:
    """A querier's Reader service over `sources_over` these."""
    sources = sources_over(
        stores,
        history,
        window_ms=window_ms,
        partitions=partitions,
        topic_id=topic_id,
        generation=generation,
        resolutions=resolutions,
    )
    return QuerierService(sources, limits or SelectLimits(), calls)


def one_store(served: ServedHeads) -> OneStore:
    """The Stores of a process with one local store over `service`."""
    return OneStore(served.store)


def select(service: QuerierService, query: SelectQuery, caller: grpc.ServicerContext | None = None) -> SelectResult:
    """One Select, decoded by the client's code."""
    call = query.call()
    reader = call.reader()
    for message in messages(service, query, caller):
        reader.add(message)
    return reader.finish()


def messages(
    service: QuerierService, query: SelectQuery, caller: grpc.ServicerContext | None = None
) -> Iterator[reader_pb2.SelectResponse]:
    """The messages of one Select, encoded and parsed as over the wire."""
    request = cast(reader_pb2.SelectRequest, query.call().request)
    for message in service.Select(request, caller or context()):
        yield reader_pb2.SelectResponse.FromString(message)


def stored(
    sources: Sources,
    selector: str,
    start_ms: int,
    end_ms: int,
    options: ReadOptions = ReadOptions(),
    *,
    limits: SelectLimits | None = None,
    calls: ReadCalls | None = None,
    caller: Caller | None = None,
) -> StoredSeries:
    """One selection of a PromQL query. Both ends of the range are included."""
    with (calls or ReadCalls()).of(caller or Context()) as call:
        storage = QuerierStorage(sources, limits or SelectLimits(), call, options)
        return storage.select(parse_selector(selector), start_ms, end_ms)
