"""The address of a service, as kube-proxy serves it: each new connection goes to one of the ready pods.

A connection stays with its pod until one of the two ends it. A pod that is no longer an endpoint gets no new ones, but
nodes learn that late.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

READ_BYTES = 1 << 16
STOP_WITHIN_S = 10.0


class ServiceAddress:
    """Listens on `ports` of `host`, each forwarded to the same port of a pod. A context manager; other methods may be
    called from any thread. learn_s: the time until a change of the endpoints takes effect."""

    def __init__(self, host: str, ports: Sequence[int], learn_s: float) -> None:
        self.host = host
        self._ports = ports
        self._learn_s = learn_s
        self._endpoints: Sequence[str] = ()
        self._turns = itertools.count()
        self._listeners: list[asyncio.Server] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"service-{host}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(STOP_WITHIN_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(STOP_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_WITHIN_S)
        self._loop.close()

    def set(self, endpoints: Sequence[str]) -> None:
        """The addresses of the ready pods. Calls take effect in their order."""
        self._loop.call_soon_threadsafe(self._loop.call_later, self._learn_s, self._replace, tuple(endpoints))

    def _replace(self, endpoints: Sequence[str]) -> None:
        self._endpoints = endpoints

    async def _listen(self) -> None:
        for port in self._ports:
            serve = functools.partial(self._serve, port)
            self._listeners.append(await asyncio.start_server(serve, self.host, port))

    async def _end(self) -> None:
        for listener in self._listeners:
            listener.close()
        for writer in self._open:
            writer.transport.abort()
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.sleep(0)  # The loop closes transports in its next round.

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = [writer]
        self._open.add(writer)
        try:
            if not self._endpoints:
                return  # As the reject rule of a service without endpoints.
            endpoint = self._endpoints[next(self._turns) % len(self._endpoints)]
            from_pod, to_pod = await asyncio.open_connection(endpoint, port)
            opened.append(to_pod)
            self._open.add(to_pod)
            await asyncio.gather(_copy(reader, to_pod), _copy(from_pod, writer))
            for one in opened:
                one.close()  # Sends the rest before.
        except OSError:
            pass  # The error is passed on below, where both connections are cut.
        finally:
            for one in opened:
                if not one.is_closing():
                    one.transport.abort()
            self._open.difference_update(opened)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the end of the stream, which is passed on. Raises OSError for a reset of either side."""
    while data := await reader.read(READ_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
