"""The address of a pod that is gone: a network that does not answer, so that its callers wait."""

from __future__ import annotations

import socket
from collections.abc import Sequence

FULL_AFTER = 4  # More connections than the kernel keeps for a listener without a backlog.


class BlackHole:
    """Ports of an address where every further attempt to connect hangs, for the kernel drops it. Ends with `close`."""

    def __init__(self, address: str, ports: Sequence[int]) -> None:
        self._sockets: list[socket.socket] = []
        for port in ports:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(0)
            self._sockets.append(listener)
            for _ in range(FULL_AFTER):
                waiting = socket.socket()
                waiting.setblocking(False)
                waiting.connect_ex((address, port))
                self._sockets.append(waiting)

    def close(self) -> None:
        for one in self._sockets:
            one.close()
