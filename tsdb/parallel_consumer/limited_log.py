"""LimitedLog: one line per cause and scope in EVERY_S, with the count of suppressed lines. Uses standard logging only.

The first line of a cause is logged at once. Later ones are counted; after EVERY_S the last of them is logged with the
count. Thread-safe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from dataclasses import dataclass

from tsdb.parallel_consumer.clock import Clock

EVERY_S = 60.0
KEYS_MAX = 1_000  # Most pairs of cause and scope within one EVERY_S. Beyond it all scopes of a cause share one line.

log = logging.getLogger("tsdb.parallel_consumer")


@dataclass(slots=True)
class _Line:
    """until: monotonic time of the next line that may be logged. suppressed: number of suppressed lines."""

    until: float
    level: int = 0
    text: str = ""
    arguments: tuple[object, ...] = ()
    suppressed: int = 0


class LimitedLog:
    """Arguments are those of logging: a suppressed line is not formatted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # Guards the lines.
        self._lines: dict[tuple[str, Hashable], _Line] = {}
        self._flush_at = 0.0

    def log(self, level: int, cause: str, scope: Hashable, text: str, *arguments: object) -> None:
        """Log the line, or suppress it. scope: for example a partition; None: the cause has no scope."""
        now = self._clock.monotonic()
        with self._lock:
            key = (cause, scope)
            if key not in self._lines and len(self._lines) >= KEYS_MAX:
                key = (cause, "more")
            line = self._lines.get(key)
            if line is not None and now < line.until:
                line.level, line.text, line.arguments = level, text, arguments
                line.suppressed += 1
                return
            suppressed = 0 if line is None else line.suppressed
            self._lines[key] = _Line(now + EVERY_S)
        _log(level, text, arguments, suppressed)

    def flush(self) -> None:
        """Log lines whose suppression time is over. Cheap: call it often."""
        now = self._clock.monotonic()
        if not self._lines or now < self._flush_at:
            return
        due: list[_Line] = []
        with self._lock:
            for key, line in list(self._lines.items()):
                if now < line.until:
                    continue
                if line.suppressed:
                    due.append(line)
                    self._lines[key] = _Line(now + EVERY_S)
                else:
                    del self._lines[key]
            self._flush_at = min((line.until for line in self._lines.values()), default=0.0)
        for line in due:
            _log(line.level, line.text, line.arguments, line.suppressed - 1)

    def close(self) -> None:
        """Log all suppressed lines."""
        with self._lock:
            suppressed, self._lines = [line for line in self._lines.values() if line.suppressed], {}
        for line in suppressed:
            _log(line.level, line.text, line.arguments, line.suppressed - 1)


def one_line(text: str, chars_max: int) -> str:
    """The text without line ends, at most chars_max long: text of records and exceptions cannot forge log lines.

    Half a surrogate pair, which no UTF-8 stream accepts, is escaped.
    """
    whole = " ".join(text[: 4 * chars_max].split())[:chars_max]
    return whole.encode(errors="backslashreplace").decode()


def _log(level: int, text: str, arguments: tuple[object, ...], suppressed: int) -> None:
    if suppressed:
        text, arguments = text + " (%d more held back)", (*arguments, suppressed)
    log.log(level, text, *arguments)
