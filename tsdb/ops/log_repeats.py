"""Repeats of one cause in the log: the first is written, those within the next minute are counted.

What an attack or an outage causes again and again would fill a disk and hide the line that explains it. The next line
of that cause says how many were held back; counters tell the rest.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

EVERY_S = 60.0
CAUSES_MAX = 1000  # Beyond it the cause written longest ago is forgotten.
HELD_BACK = "held_back"
# What tells causes apart beside logger, level and event; the other fields change from line to line.
_FIELDS = ("reason", "partition", "topic", "store", "target", "name", "component", "thread", "method", "path")


class RepeatFilter(logging.Filter):
    """Lets one warning or error a cause through in `every_s`; what is below a warning passes. Thread-safe."""

    def __init__(self, every_s: float = EVERY_S, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s = every_s
        self._monotonic = monotonic
        # Guards _written; a leaf.
        self._lock = threading.Lock()
        self._written: OrderedDict[tuple[object, ...], _Cause] = OrderedDict()  # Written longest ago first.

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written; one that is gets the count of those held back before it."""
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
