"""Dialect: the two formats of an exposition. They differ in the unit of times and in the end of a page."""

from __future__ import annotations

import enum
import math
import re
from decimal import Decimal

from tsdb.cli.terminal.errors import shown
from tsdb.model.errors import InvalidRequest

END = "# EOF"  # The last line of an OpenMetrics page. A page without it was truncated.
CONTENT_TYPE = "application/openmetrics-text"
_END_BYTES = b"# EOF"
TAIL_BYTES = 64  # Enough for the end marker and some line breaks after it.

_MILLISECONDS = re.compile(r"-?\d{1,18}", re.ASCII)
_SECONDS = re.compile(r"[+-]?\d{1,15}(\.\d{0,18})?([eE][+-]?\d{1,2})?", re.ASCII)
_MS_MAX = 10**18


class Dialect(enum.Enum):
    """TEXT: Prometheus text, with times in integer ms. OPENMETRICS: times in seconds, and `# EOF` at the end."""

    TEXT = "text"
    OPENMETRICS = "openmetrics"

    def ts_ms(self, text: str, place: str) -> int:
        """The time of a sample in whole ms, rounded down. Raises InvalidRequest with the place."""
        if self is Dialect.TEXT:
            if _MILLISECONDS.fullmatch(text):
                return int(text)
            raise InvalidRequest(f"{place}: not a time in integer ms: {shown(text)}", reason="bad_input")
        # Decimal, since seconds as a float are sometimes off by a millisecond.
        ms = Decimal(text) * 1000 if _SECONDS.fullmatch(text) else None
        if ms is None or abs(ms) > _MS_MAX:
            raise InvalidRequest(f"{place}: not a time in seconds: {shown(text)}", reason="bad_input")
        return math.floor(ms)


def dialect_of_page(content_type: str, page: bytes) -> Dialect:
    """The dialect of a whole page, from its content type or, without one, from its last line."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind:
        return Dialect.OPENMETRICS if kind == CONTENT_TYPE else Dialect.TEXT
    return dialect_of_tail(page[-TAIL_BYTES:])


def dialect_of_tail(tail: bytes) -> Dialect:
    """The dialect of a page or file, from its last bytes."""
    return Dialect.OPENMETRICS if tail.rstrip().split(b"\n")[-1] == _END_BYTES else Dialect.TEXT
