"""A slow HTTP service in a separate process: it answers `GET /<ms>` after that time and reports the latency it gave."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from bench.line_process import LineProcess

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class StubService:
    """The parent's side: starts the service and calls it. A context manager."""

    def __init__(self) -> None:
        self._child = LineProcess("bench.consumer.stub_service")
        self.port = int(self._child.line())
        self._local = threading.local()

    def call(self, ms: int) -> None:
        """One call that takes `ms`, over the calling thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", f"/{ms}")
        answer = connection.getresponse()
        assert answer.read() == b"ok", answer.status

    def report(self) -> dict[str, float]:
        """Figures of the service since the last report: count, mean_ms, most_at_once."""
        return self._child.ask()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.end(10.0)


class _Server:
    """The child's side. Each connection has a thread, because an event loop rounds waits up to whole milliseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards the figures below; an innermost lock.
        self._total_s = 0.0
        self._count = self._at_once = self._most = 0

    def run(self) -> None:
        with suppress(PermissionError):
            os.nice(-10)  # It represents another machine: load on this one must not slow it down.
        listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        print(listener.getsockname()[1], flush=True)
        while sys.stdin.readline():
            with self._lock:
                report = {"count": self._count, "mean_ms": self._total_s / max(1, self._count) * 1000}
                report["most_at_once"] = self._most
                self._total_s, self._count, self._most = 0.0, 0, self._at_once
            print(json.dumps(report), flush=True)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        request = b""
        with connection, suppress(ConnectionError):
            while part := connection.recv(4_096):
                request += part
                if request.endswith(b"\r\n\r\n"):
                    self._answer(connection, int(request.split(b" ", 2)[1][1:]) / 1000)
                    request = b""

    def _answer(self, connection: socket.socket, seconds: float) -> None:
        began_at = time.monotonic()
        with self._lock:
            self._at_once += 1
            self._most = max(self._most, self._at_once)
        time.sleep(max(0.0, began_at + seconds - time.monotonic()))
        with self._lock:
            self._at_once -= 1
            self._count += 1
            self._total_s += time.monotonic() - began_at
        connection.sendall(_ANSWER)


if __name__ == "__main__":
    _Server().run()
