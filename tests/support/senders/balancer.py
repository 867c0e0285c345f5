"""A balancer of connections: each new one goes to the next address, whatever state it is in."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator, Sequence
from itertools import cycle


@contextlib.contextmanager
def balancer(addresses: Sequence[str]) -> Iterator[str]:
    """The address of the balancer. It acts like a Service of Kubernetes before it learns of readiness: an open
    connection stays where it is.
    """
    turns = cycle(addresses)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            host, _, port = next(turns).rpartition(":")
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=10) as target:
                target.settimeout(None)
                back = threading.Thread(target=_pump, args=(target, self.request), daemon=True)
                back.start()
                _pump(self.request, target)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
