"""Free loopback ports that no other user of this module gets.

The ports are below the ephemeral range, so that no outgoing connection takes one before the server binds it. A lock
file for each port separates two test runs on one machine.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from types import TracebackType

FIRST, LAST = 20_000, 32_000
LOCKS = Path(tempfile.gettempdir()) / f"kafka-tsdb-ports.{os.getuid()}"


class Ports:
    """`count` ports, reserved until `close` or the end of the process. A context manager."""

    def __init__(self, count: int) -> None:
        LOCKS.mkdir(exist_ok=True)
        self._locks: list[int] = []
        self.numbers: list[int] = []
        candidates = random.sample(range(FIRST, LAST), LAST - FIRST)
        while len(self.numbers) < count:
            if not candidates:
                raise OSError(f"no free port in {FIRST}-{LAST}")
            self._try(candidates.pop())

    def __enter__(self) -> Ports:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the ports. A second call does nothing."""
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def _try(self, port: int) -> None:
        lock = os.open(LOCKS / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            return
        self._locks.append(lock)
        self.numbers.append(port)
