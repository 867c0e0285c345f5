"""Sends the log of librdkafka to the process's log, with fewer messages while brokers do not answer.

librdkafka logs every failed connection as an error, many times a second. Readiness and answers already report the
outage. Here each kind of message passes as a warning once every few seconds, with the number of messages left out.
"""

from __future__ import annotations

import logging
import threading
import time

EVERY_S = 10.0

logger = logging.getLogger("librdkafka")


class Seldom(logging.Filter):
    """Passes one record of a kind every `every_s`. The kind is the library's facility name."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        super().__init__()
        self._every_s = every_s
        self._lock = threading.Lock()  # Guards what is below.
        self._passed_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.getMessage().partition(" ")[0]
        with self._lock:
            now = time.monotonic()
            if now - self._passed_at.get(kind, -self._every_s) < self._every_s:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return False
            self._passed_at[kind] = now
            left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more of {kind} left out)", ()
        record.levelno = min(record.levelno, logging.WARNING)
        record.levelname = logging.getLevelName(record.levelno)
        return True


logger.addFilter(Seldom())
