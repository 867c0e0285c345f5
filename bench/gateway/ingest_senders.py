"""Senders: each has n connections of one protocol and sends prepared bodies. Used by one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import grpc

WRITE = "/tsdb.v1.Ingest/Write"
TIMEOUT_S = 30.0
REMOTE_WRITE_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
OK = "ok"


class Sender(Protocol):
    """A connection carries one request at a time."""

    async def open(self, connections: int) -> None: ...

    async def send(self, connection: int, body: bytes) -> str:
        """OK, or the answer's code and the beginning of its text."""

    async def close(self) -> None: ...


class GrpcSender:
    """A channel a connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channels: list[grpc.aio.Channel] = []
        self._calls: list[Any] = []

    async def open(self, connections: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channels = [grpc.aio.insecure_channel(self._address, options=options) for _ in range(connections)]
        self._calls = [channel.unary_unary(WRITE, bytes, bytes) for channel in self._channels]
        await asyncio.gather(*(channel.channel_ready() for channel in self._channels))

    async def send(self, connection: int, body: bytes) -> str:
        try:
            await self._calls[connection](body, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {str(error.details())[:80]}"
        return OK

    async def close(self) -> None:
        await asyncio.gather(*(channel.close(None) for channel in self._channels))


class HttpSender:
    """Remote write over HTTP/1.1 with connections that stay open. address: HOST:PORT/PATH."""

    def __init__(self, address: str, headers: Mapping[str, str] = MappingProxyType(REMOTE_WRITE_HEADERS)) -> None:
        self._host, _, path = address.partition("/")
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._head = f"POST /{path} HTTP/1.1\r\nHost: {self._host}\r\n{lines}Content-Length: ".encode()
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def open(self, connections: int) -> None:
        self._streams = [await self._connect() for _ in range(connections)]

    async def send(self, connection: int, body: bytes) -> str:
        try:
            return await asyncio.wait_for(self._send(connection, body), TIMEOUT_S)
        except (OSError, EOFError, TimeoutError) as error:
            self._streams[connection][1].close()
            self._streams[connection] = await self._connect()
            return type(error).__name__

    async def close(self) -> None:
        for _, writer in self._streams:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._host.rsplit(":", 1)
        return await asyncio.open_connection(host, int(port))

    async def _send(self, connection: int, body: bytes) -> str:
        reader, writer = self._streams[connection]
        writer.write(self._head + b"%d\r\n\r\n" % len(body) + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        text = await reader.readexactly(int(headers.get("content-length", 0)))
        code = status.split(" ")[1]
        return OK if code[0] == "2" else f"{code}: {text[:80].decode(errors='replace')}"
