"""The asyncio client: the same methods as `tsdb.client.sync.Client`, awaited. Belongs to the loop that opened it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc
import grpc.aio

from tsdb.client import read, write
from tsdb.client.arguments import Step, Time, arguments_of
from tsdb.client.batch import RequestLimits, WriteBatch
from tsdb.client.call import STREAMING, ClientCall, Method, stub_methods
from tsdb.client.cardinality import Cardinality, CardinalityKeywords, cardinality
from tsdb.client.channel import ClientTls, call_metadata, open_aio_channel
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
from tsdb.client.sync import RECONNECT_S, TIMEOUT_S
from tsdb.client.watch import WatchBatch, WatchState
from tsdb.client.write import WriteResult
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.v1 import common_pb2, reader_pb2

Answer = TypeVar("Answer")


def connect_async(
    address: str, *, tls: ClientTls | None = None, token: str | None = None, timeout_s: float = TIMEOUT_S
) -> Connecting:
    """Does what `connect` does, on the running loop: `async with connect_async(...) as client` or `await
    connect_async(...)`."""
    return Connecting(address, tls, token, timeout_s)


class Connecting:
    """A client that is not open yet. Await it, or enter it as an asynchronous context manager, which closes it."""

    def __init__(self, address: str, tls: ClientTls | None, token: str | None, timeout_s: float) -> None:
        self._address = address
        self._tls = tls
        self._token = token
        self._timeout_s = timeout_s
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    async def _open(self) -> AsyncClient:
        # A channel belongs to the loop that runs at its creation.
        with arguments_of("connect_async"):
            channel = open_aio_channel(self._address, self._tls)
            peer = Peer(self._address, self._tls is not None)
            return AsyncClient(channel, peer, token=self._token, timeout_s=self._timeout_s)


class AsyncClient:
    """The asyncio form of `Client`, with the same methods; an asynchronous context manager. A thread decodes streamed
    answers."""

    def __init__(
        self, channel: grpc.aio.Channel, peer: Peer, *, token: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._channel = channel
        self._peer = peer
        self._methods = stub_methods(channel)
        self._metadata = call_metadata(token)
        self._timeout_s = timeout_s

    async def write(
        self,
        batch: WriteBatch,
        *,
        partial: bool = False,
        limits: RequestLimits | None = None,
        timeout_s: float | None = None,
    ) -> WriteResult:
        attempts = self._attempts(timeout_s)
        total = WriteResult()
        for call in write.calls(batch, limits or RequestLimits(), partial=partial):
            write.add(total, await self._run(call, attempts))
        return total

    async def select(
        self,
        selector: Selector | None,
        start_ms: Time,
        end_ms: Time,
        *,
        timeout_s: float | None = None,
        **query: Unpack[SelectKeywords],
    ) -> SelectResult:
        return await self.run(select(selector, start_ms, end_ms, **query), timeout_s=timeout_s)

    async def series(
        self, selector: Selector | None = None, *, timeout_s: float | None = None, **ask: Unpack[SeriesKeywords]
    ) -> Listed[SeriesInfo]:
        return await self.run(read.series(selector, **ask), timeout_s=timeout_s)

    async def series_groups(
        self,
        selector: Selector | None,
        group_by: Sequence[str],
        *,
        timeout_s: float | None = None,
        **ask: Unpack[GroupKeywords],
    ) -> Listed[SeriesGroup]:
        return await self.run(read.series_groups(selector, group_by, **ask), timeout_s=timeout_s)

    async def label_names(
        self, selector: Selector | None = None, *, timeout_s: float | None = None, **ask: Unpack[LabelKeywords]
    ) -> Listed[str]:
        return await self.run(read.label_names(selector, **ask), timeout_s=timeout_s)

    async def label_values(
        self,
        name: str,
        selector: Selector | None = None,
        *,
        timeout_s: float | None = None,
        **ask: Unpack[ValueKeywords],
    ) -> Listed[str]:
        return await self.run(read.label_values(name, selector, **ask), timeout_s=timeout_s)

    async def cardinality(
        self, selector: Selector | None = None, *, timeout_s: float | None = None, **ask: Unpack[CardinalityKeywords]
    ) -> Cardinality:
        return await self.run(cardinality(selector, **ask), timeout_s=timeout_s)

    async def query(
        self, text: str, at_ms: Time | None = None, *, timeout_s: float | None = None, **ask: Unpack[QueryKeywords]
    ) -> QueryResult:
        at_ms = round(time.time() * 1000) if at_ms is None else at_ms
        return await self.run(query(text, at_ms, **ask), timeout_s=timeout_s)

    async def query_range(
        self,
        text: str,
        start_ms: Time,
        end_ms: Time,
        step_ms: Step,
        *,
        timeout_s: float | None = None,
        **ask: Unpack[QueryKeywords],
    ) -> QueryResult:
        return await self.run(query_range(text, start_ms, end_ms, step_ms, **ask), timeout_s=timeout_s)

    async def queries(self, *, timeout_s: float | None = None) -> list[QueryInfo]:
        return await self.run(queries(), timeout_s=timeout_s)

    async def cancel_query(self, number: int, *, timeout_s: float | None = None) -> bool:
        return await self.run(cancel_query(number), timeout_s=timeout_s)

    async def coverage(self, *, timeout_s: float | None = None) -> list[common_pb2.PartitionState]:
        return await self.run(read.coverage(), timeout_s=timeout_s)

    async def history(self, *, timeout_s: float | None = None) -> list[reader_pb2.HistoryState]:
        return await self.run(read.history(), timeout_s=timeout_s)

    async def chunk_stage(self, *, timeout_s: float | None = None) -> reader_pb2.ChunkStageState | None:
        return await self.run(read.chunk_stage(), timeout_s=timeout_s)

    async def away(self, *, timeout_s: float | None = None) -> list[reader_pb2.PartAway]:
        return await self.run(read.away(), timeout_s=timeout_s)

    async def experiment(self, *, timeout_s: float | None = None) -> str:
        return await self.run(read.experiment(), timeout_s=timeout_s)

    async def watch(
        self,
        selector: Selector,
        *,
        partitions: Sequence[int] = (),
        resume: Iterable[common_pb2.Token] = (),
        duration_s: float | None = None,
        reconnect_s: float = RECONNECT_S,
    ) -> AsyncIterator[WatchBatch]:
        state = WatchState(selector, partitions, resume)
        end_at = None if duration_s is None else time.monotonic() + duration_s
        state.begin(await self.coverage(timeout_s=reconnect_s))
        attempts = Attempts(reconnect_s)
        while True:
            left_s = None if end_at is None else max(end_at - time.monotonic(), 0.001)
            stream = self._invoke(Method.WATCH, state.request(), left_s)
            try:
                async for message in stream:
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
            await asyncio.sleep(delay_s)

    async def run(self, call: ClientCall[Answer], *, timeout_s: float | None = None) -> Answer:
        return await self._run(call, self._attempts(timeout_s))

    async def close(self) -> None:
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _invoke(self, method: Method, request: Any, timeout_s: float | None) -> Any:
        try:
            return self._methods[method](request, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.UsageError as error:  # gRPC's error for a closed channel.
            raise client_closed() from error

    def _attempts(self, timeout_s: float | None) -> Attempts:
        return Attempts(self._timeout_s if timeout_s is None else timeout_s)

    async def _run(self, call: ClientCall[Answer], attempts: Attempts) -> Answer:
        while True:
            try:
                return await self._once(call, attempts.remaining_s())
            except grpc.RpcError as rpc_error:
                error = call_error(rpc_error, self._peer, call.method)
            except (Unavailable, Overloaded) as cut:
                error = cut
            delay_s = attempts.delay_after(error)
            if delay_s is None:
                raise attempts.cause(error)
            await asyncio.sleep(delay_s)

    async def _once(self, call: ClientCall[Answer], timeout_s: float) -> Answer:
        reader = call.reader()
        answer = self._invoke(call.method, call.request, timeout_s)
        if call.method not in STREAMING:
            reader.add(await answer)
            return reader.finish()
        try:
            async for message in answer:
                reader.add(message)
        finally:
            answer.cancel()
        return await asyncio.to_thread(reader.finish)
