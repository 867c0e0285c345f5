"""The blocking client. Executes the calls that the modules select, read, write and watch build. Thread-safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc

from tsdb.client import read, write
from tsdb.client.arguments import Step, Time, arguments_of
from tsdb.client.batch import RequestLimits, WriteBatch
from tsdb.client.call import STREAMING, ClientCall, Method, stub_methods
from tsdb.client.cardinality import Cardinality, CardinalityKeywords, cardinality
from tsdb.client.channel import ClientTls, call_metadata, open_channel
from tsdb.client.failures import Peer, call_error, client_closed
from tsdb.client.options import Selector
from tsdb.client.queries import QueryInfo, cancel_query, queries
from tsdb.client.query import QueryKeywords, QueryResult, query, query_range
from tsdb.client.read import (
    GroupKeywords,
    LabelKeywords,
    Listed,
    SeriesGroup,
    SeriesInfo,
    SeriesKeywords,
    ValueKeywords,
)
from tsdb.client.result import SelectResult
from tsdb.client.retry import Attempts
from tsdb.client.select import SelectKeywords, select
from tsdb.client.watch import WatchBatch, WatchState
from tsdb.client.write import WriteResult
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.v1 import common_pb2, reader_pb2

TIMEOUT_S = 30.0
RECONNECT_S = 60.0  # A store's restart with replay should take less.

Answer = TypeVar("Answer")


def connect(
    address: str,
    *,
    tls: ClientTls | None = None,
    token: str | None = None,
    timeout_s: float = TIMEOUT_S,
    on_retry: Callable[[TsdbError], None] | None = None,
) -> Client:
    """A client of the gateway, store or querier at HOST:PORT. It connects at its first call.

    token: bearer token sent with every call. timeout_s: bound of each call, retries included. on_retry: called with the
    error of a failed attempt before the wait for the next one, on the thread of the call. Raises InvalidRequest.
    """
    with arguments_of("connect"):
        channel, peer = open_channel(address, tls), Peer(address, tls is not None)
        return Client(channel, peer, token=token, timeout_s=timeout_s, on_retry=on_retry)


class Client:
    """Writes and reads. A context manager; `close` ends running calls.

    Every failure is a TsdbError: InvalidRequest, Unavailable, Overloaded, OutOfCoverage, HoleInRange, CorruptData,
    Unauthenticated. Unavailable and Overloaded are raised only after failed retries within the timeout.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        peer: Peer,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        on_retry: Callable[[TsdbError], None] | None = None,
    ) -> None:
        self._channel = channel
        self._peer = peer
        self._methods = stub_methods(channel)
        self._metadata = call_metadata(token)
        self._timeout_s = timeout_s
        self._on_retry = on_retry

    def write(
        self,
        batch: WriteBatch,
        *,
        partial: bool = False,
        limits: RequestLimits | None = None,
        timeout_s: float | None = None,
    ) -> WriteResult:
        """Returns when the log has the samples, at once for an empty batch.

        A batch too large for one request is sent as several, in order. Each request is all or nothing (unless
        `partial`); the batch is not. After an error some samples may be written; writing the batch again is safe.
        """
        attempts = self._attempts(timeout_s)
        total = WriteResult()
        for call in write.calls(batch, limits or RequestLimits(), partial=partial):
            write.add(total, self._run(call, attempts))
        return total

    def select(
        self,
        selector: Selector | None,
        start_ms: Time,
        end_ms: Time,
        *,
        timeout_s: float | None = None,
        **query: Unpack[SelectKeywords],
    ) -> SelectResult:
        """Samples of matching series in [start_ms, end_ms). Further keywords: those of SelectQuery."""
        return self.run(select(selector, start_ms, end_ms, **query), timeout_s=timeout_s)

    def series(
        self, selector: Selector | None = None, *, timeout_s: float | None = None, **ask: Unpack[SeriesKeywords]
    ) -> Listed[SeriesInfo]:
        """Series that match; None selects all. Further keywords: see tsdb.client.read.series."""
        return self.run(read.series(selector, **ask), timeout_s=timeout_s)

    def series_groups(
        self,
        selector: Selector | None,
        group_by: Sequence[str],
        *,
        timeout_s: float | None = None,
        **ask: Unpack[GroupKeywords],
    ) -> Listed[SeriesGroup]:
        """Number of series for each combination of label values. Keywords: those of tsdb.client.read.series_groups."""
        return self.run(read.series_groups(selector, group_by, **ask), timeout_s=timeout_s)

    def label_names(
        self, selector: Selector | None = None, *, timeout_s: float | None = None, **ask: Unpack[LabelKeywords]
    ) -> Listed[str]:
        """Label names, sorted. Keywords: those of tsdb.client.read.label_names."""
        return self.run(read.label_names(selector, **ask), timeout_s=timeout_s)

    def label_values(
        self,
        name: str,
        selector: Selector | None = None,
        *,
        timeout_s: float | None = None,
        **ask: Unpack[ValueKeywords],
    ) -> Listed[str]:
        """Values of one label, sorted. Keywords: those of tsdb.client.read.label_values."""
        return self.run(read.label_values(name, selector, **ask), timeout_s=timeout_s)

    def cardinality(
        self, selector: Selector | None = None, *, timeout_s: float | None = None, **ask: Unpack[CardinalityKeywords]
    ) -> Cardinality:
        """The groups with the most series. Keywords: those of tsdb.client.cardinality.cardinality."""
        return self.run(cardinality(selector, **ask), timeout_s=timeout_s)

    def query(
        self, text: str, at_ms: Time | None = None, *, timeout_s: float | None = None, **ask: Unpack[QueryKeywords]
    ) -> QueryResult:
        """The value of a PromQL expression at a time, by default now. Keywords: see tsdb.client.query.query."""
        at_ms = round(time.time() * 1000) if at_ms is None else at_ms
        return self.run(query(text, at_ms, **ask), timeout_s=timeout_s)

    def query_range(
        self,
        text: str,
        start_ms: Time,
        end_ms: Time,
        step_ms: Step,
        *,
        timeout_s: float | None = None,
        **ask: Unpack[QueryKeywords],
    ) -> QueryResult:
        """The values of a PromQL expression at steps up to end_ms. Keywords: those of tsdb.client.query.query_range."""
        return self.run(query_range(text, start_ms, end_ms, step_ms, **ask), timeout_s=timeout_s)

    def queries(self, *, timeout_s: float | None = None) -> list[QueryInfo]:
        """The running queries of a querier, the oldest first."""
        return self.run(queries(), timeout_s=timeout_s)

    def cancel_query(self, number: int, *, timeout_s: float | None = None) -> bool:
        """End a running query; False when it does not run. Its caller gets Unavailable (cancelled)."""
        return self.run(cancel_query(number), timeout_s=timeout_s)

    def coverage(self, *, timeout_s: float | None = None) -> list[common_pb2.PartitionState]:
        """State of each partition: coverage, lag, offsets."""
        return self.run(read.coverage(), timeout_s=timeout_s)

    def history(self, *, timeout_s: float | None = None) -> list[reader_pb2.HistoryState]:
        """Load progress of history for each partition; empty from a store, and from a querier without history."""
        return self.run(read.history(), timeout_s=timeout_s)

    def chunk_stage(self, *, timeout_s: float | None = None) -> reader_pb2.ChunkStageState | None:
        """The chunk stage as a querier last saw it; None from a store, and from a querier without history."""
        return self.run(read.chunk_stage(), timeout_s=timeout_s)

    def away(self, *, timeout_s: float | None = None) -> list[reader_pb2.PartAway]:
        """Parts that do not answer the server, each with address, error and next step. Empty from a store."""
        return self.run(read.away(), timeout_s=timeout_s)

    def experiment(self, *, timeout_s: float | None = None) -> str:
        """Name of the experiment that the server belongs to; empty for production."""
        return self.run(read.experiment(), timeout_s=timeout_s)

    def watch(
        self,
        selector: Selector,
        *,
        partitions: Sequence[int] = (),
        resume: Iterable[common_pb2.Token] = (),
        duration_s: float | None = None,
        reconnect_s: float = RECONNECT_S,
    ) -> Iterator[WatchBatch]:
        """Samples in the order of their application, each once, from now or from `resume` on. The watch ends after
        duration_s.

        Reconnects after a failure; raises Unavailable when that fails for reconnect_s, and OutOfCoverage when the store
        no longer holds the resume point.

        """
        state = WatchState(selector, partitions, resume)
        end_at = None if duration_s is None else time.monotonic() + duration_s
        state.begin(self.coverage(timeout_s=reconnect_s))
        yield from self._watch(state, end_at, Attempts(reconnect_s))

    def _watch(self, state: WatchState, end_at: float | None, attempts: Attempts) -> Iterator[WatchBatch]:
        while True:
            left_s = None if end_at is None else max(end_at - time.monotonic(), 0.001)
            stream = self._invoke(Method.WATCH, state.request(), left_s)
            try:
                for message in stream:
                    attempts.progressed()
                    batch = state.add(message)
                    if batch is not None:
                        yield batch
                error: TsdbError = Unavailable("the server ended the watch", reason="watch_ended")
            except grpc.RpcError as rpc_error:
                error = call_error(rpc_error, self._peer, Method.WATCH)
            finally:
                stream.cancel()
            if end_at is not None and time.monotonic() >= end_at:
                return
            delay_s = attempts.delay_after(error)
            if delay_s is None:
                raise error
            self._wait(delay_s)

    def run(self, call: ClientCall[Answer], *, timeout_s: float | None = None) -> Answer:
        """Execute one call, with retries within the timeout."""
        return self._run(call, self._attempts(timeout_s))

    def close(self) -> None:
        """End running calls with Unavailable (cancelled)."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _attempts(self, timeout_s: float | None) -> Attempts:
        return Attempts(self._timeout_s if timeout_s is None else timeout_s)

    def _run(self, call: ClientCall[Answer], attempts: Attempts) -> Answer:
        while True:
            try:
                return self._once(call, attempts.remaining_s())
            except grpc.RpcError as rpc_error:
                error = call_error(rpc_error, self._peer, call.method)
            except (Unavailable, Overloaded) as cut:
                error = cut
            delay_s = attempts.delay_after(error)
            if delay_s is None:
                raise attempts.cause(error)
            if self._on_retry is not None:
                self._on_retry(error)
            self._wait(delay_s)

    def _invoke(self, method: Method, request: Any, timeout_s: float | None) -> Any:
        try:
            return self._methods[method](request, timeout=timeout_s, metadata=self._metadata)
        except ValueError as error:  # gRPC's error for a closed channel.
            raise client_closed() from error

    def _wait(self, seconds: float) -> None:
        # Without event engine threads (tsdb.ops.grpc.environment) gRPC polls its sockets only while a thread waits for
        # events, and an unpolled connection attempt fails after 20 s. The subscription keeps the polling on.
        self._channel.subscribe(_ignore)
        try:
            time.sleep(seconds)
        finally:
            self._channel.unsubscribe(_ignore)

    def _once(self, call: ClientCall[Answer], timeout_s: float) -> Answer:
        reader = call.reader()
        answer = self._invoke(call.method, call.request, timeout_s)
        if call.method not in STREAMING:
            reader.add(answer)
            return reader.finish()
        try:
            for message in answer:
                reader.add(message)
        finally:
            answer.cancel()
        return reader.finish()


def _ignore(_: grpc.ChannelConnectivity) -> None:
    pass
