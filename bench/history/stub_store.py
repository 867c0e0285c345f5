"""A slow history in a separate process: it answers each write after a random pause and stores nothing.

It reports the latency that it gave: from reading a whole request until writing its answer. Requests go over one TCP
connection: (number u32, length u32, bytes); an answer is the number.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from bench.line_process import LineProcess
from tsdb.codec.chunk.key import ChunkKey, encode_key
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.series_record import Announcement
from tsdb.history.interface import Loaded, OnDone

_REQUEST = struct.Struct("<II")
_ANSWER = struct.Struct("<I")
READ_BYTES = 1 << 16


class StubStore:
    """ChunkSink of the bench. began_at, ended_at: monotonic seconds of the first write and of the last answer. written:
    answers."""

    def __init__(self, latency_ms: float) -> None:
        self._child = LineProcess("bench.history.stub_store", str(latency_ms))
        port = int(self._child.line())
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waiting: dict[int, OnDone] = {}
        self._number = 0
        self._loaded: dict[int, Loaded] = {}
        self.began_at = self.ended_at = 0.0
        self.written = 0
        self._thread = threading.Thread(target=self._read, name="stub-answers", daemon=True)
        self._thread.start()

    def write(self, key: ChunkKey, value: bytes, on_done: OnDone) -> None:
        self._number += 1
        self._waiting[self._number] = on_done
        if not self.began_at:
            self.began_at = time.monotonic()
        data = encode_key(key) + value
        self._socket.sendall(_REQUEST.pack(self._number, len(data)) + data)

    def delete_covered(self, keys: Sequence[ChunkKey], on_done: OnDone) -> None:
        on_done(None)

    def write_loaded(self, loaded: Loaded, on_done: OnDone) -> None:
        self._loaded[loaded.partition] = loaded
        on_done(None)

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        """A row for every partition, so that a loader continues from its commits."""
        return {number: Loaded(topic_id, number, 0, 0) for number in range(1_000)} | self._loaded

    def write_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        on_done(None)

    def delete_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        on_done(None)

    def write_series(self, announcement: Announcement, partition: int, on_done: OnDone) -> None:
        on_done(None)

    def forget(self) -> None:
        """Nothing to do: the stub caches nothing."""

    def report(self) -> dict[str, float]:
        """Figures of the child: count, mean_ms, most_at_once."""
        return self._child.ask()

    def close(self) -> None:
        """End the child process."""
        self._child.end(20.0)
        self._thread.join(5.0)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        rest = b""
        while data := self._socket.recv(READ_BYTES):
            rest += data
            whole = len(rest) - len(rest) % _ANSWER.size
            for (number,) in _ANSWER.iter_unpack(rest[:whole]):
                self._waiting.pop(number)(None)
                self.written += 1
            rest = rest[whole:]
            self.ended_at = time.monotonic()


class _Server:
    """The child's side of the connection."""

    def __init__(self, latency_ms: float) -> None:
        self._latency_s = latency_ms / 1000
        self._random = random.Random(1)
        self._total_s = 0.0
        self._count = self._at_once = self._most = 0

    async def run(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            mean_ms = self._total_s / max(1, self._count) * 1000
            print(json.dumps({"count": self._count, "mean_ms": mean_ms, "most_at_once": self._most}), flush=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                number, length = _REQUEST.unpack(await reader.readexactly(_REQUEST.size))
                await reader.readexactly(length)
                self._at_once += 1
                self._most = max(self._most, self._at_once)
                # Half of the latency is constant, the rest random (exponential), as in a healthy cluster.
                pause_s = self._latency_s * (0.5 + self._random.expovariate(2.0))
                loop.call_later(pause_s, self._answer, writer, number, time.monotonic())
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()

    def _answer(self, writer: asyncio.StreamWriter, number: int, began_at: float) -> None:
        writer.write(_ANSWER.pack(number))
        self._at_once -= 1
        self._count += 1
        self._total_s += time.monotonic() - began_at


if __name__ == "__main__":
    asyncio.run(_Server(float(sys.argv[1])).run())
