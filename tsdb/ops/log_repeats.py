"""Repeated log lines of one cause: the first is written, and repeats within the next minute are only counted.

Otherwise the repeats of an attack or an outage would fill the disk and hide the line that explains it. The next line of
the same cause contains the number of lines held back; metrics have the exact counts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

EVERY_S = 60.0
CAUSES_MAX = 1000  # Above it the cause written longest ago is dropped.
HELD_BACK = "held_back"
# Fields that identify a cause, beside logger, level and event. Other fields change from line to line.
_FIELDS = (
    "reason",
    "source",
    "partition",
    "topic",
    "store",
    "target",
    "name",
    "component",
    "thread",
    "method",
    "path",
    "caller",
    "server",
)


class RepeatFilter(logging.Filter):
    """Passes one warning or error of each cause every `every_s` seconds. Lower levels always pass. Thread-safe."""

    def __init__(self, every_s: float = EVERY_S, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s = every_s
        self._monotonic = monotonic
        # Guards _written; an innermost lock.
        self._lock = threading.Lock()
        self._written: OrderedDict[tuple[object, ...], _Cause] = OrderedDict()  # Written longest ago first.

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the record. Adds the number of records of its cause that were held back before it."""
        if record.levelno < logging.WARNING:
            return True
        key, now = _cause(record), self._monotonic()
        with self._lock:
            cause = self._written.get(key)
            if cause is not None and now - cause.at < self._every_s:
                cause.held_back += 1
                return False
            self._written[key] = _Cause(now)
            self._written.move_to_end(key)
            if len(self._written) > CAUSES_MAX:
                self._written.popitem(last=False)
        if cause is not None and cause.held_back:
            _say(record, cause.held_back)
        return True


class _Cause:
    __slots__ = ("at", "held_back")

    def __init__(self, at: float) -> None:
        self.at = at
        self.held_back = 0


def _cause(record: logging.LogRecord) -> tuple[object, ...]:
    message: Any = record.msg  # An event of structlog is a dict until it is formatted.
    if not isinstance(message, dict):
        return record.name, record.levelno, str(message)
    fields = (str(message[field]) for field in _FIELDS if field in message)
    return record.name, record.levelno, message.get("event"), *fields


def _say(record: logging.LogRecord, held_back: int) -> None:
    message: Any = record.msg
    if isinstance(message, dict):
        message[HELD_BACK] = held_back
    else:
        record.msg = f"{message} ({HELD_BACK}={held_back})"
