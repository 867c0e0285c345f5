"""Echo: runs a gRPC server that streams frames of requested sizes from memory, to measure only the transport's cost of
an answer of equal bytes.

A request is the sizes of the frames, uint32 each. The child prints its address and lives until its stdin ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np

METHOD = "/bench.Echo/Frames"
MESSAGE_BYTES_MAX = 64 << 20


class EchoProcess:
    """The parent's side of the process. A context manager."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "bench.store.echo_process"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._child.stdout is not None
        self.address = self._child.stdout.readline().strip()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.communicate(timeout=20.0)


def frames_request(sizes: Sequence[int]) -> bytes:
    """A request for frames of these sizes."""
    return np.array(sizes, np.uint32).tobytes()


class _Frames(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # of the stubs only
    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_stream_rpc_method_handler(_answer) if handler_call_details.method == METHOD else None


def _answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    for size in np.frombuffer(request, np.uint32).tolist():
        yield _NOISE[:size]


_NOISE = b""


def serve() -> None:
    """Run the child process."""
    global _NOISE
    _NOISE = np.random.default_rng(1).bytes(MESSAGE_BYTES_MAX)
    options = [("grpc.max_send_message_length", MESSAGE_BYTES_MAX)]
    server = grpc.server(ThreadPoolExecutor(4), handlers=[_Frames()], options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    serve()
