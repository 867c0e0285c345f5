"""vmalert, and an Alertmanager that keeps the alerts it gets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stack.ports import Ports
from support.rules.evaluator import evaluator
from support.senders.post_server import PostServer


class Notifier(PostServer):
    """Takes alerts as an Alertmanager does. A context manager."""

    def __init__(self) -> None:
        super().__init__(self._take, 200)
        self._lock = threading.Lock()  # Guards _alerts.
        self._alerts: list[dict[str, Any]] = []

    def _take(self, body: bytes) -> None:
        with self._lock:
            self._alerts += json.loads(body)

    def alerts(self) -> list[dict[str, Any]]:
        """All alerts so far."""
        with self._lock:
            return list(self._alerts)


@contextmanager
def vmalert(program: Path, scratch: Path, flags: Sequence[str]) -> Iterator[None]:
    """A running vmalert. It writes its last results when the block ends."""
    log = scratch / "vmalert.log"
    with Ports(1) as ports, log.open("wb") as output:
        command = [str(program), *flags, f"-httpListenAddr=127.0.0.1:{ports.numbers[0]}"]
        with evaluator(command, output, log):
            yield
