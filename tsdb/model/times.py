"""Times as text: ms since the epoch or ISO 8601. Numbers in other units are refused with a hint."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

from tsdb.model.errors import InvalidRequest

_INTEGER = re.compile(r"-?\d{1,18}")
# The current time has 10 digits in s, 13 in ms, 16 in us, 19 in ns. Read as ms, the first is in 1970 and the last two
# are far in the future.
_OTHER_UNITS = (
    (re.compile(r"\d{10}(\.\d*)?"), "seconds", Decimal(1000)),
    (re.compile(r"\d{16}"), "microseconds", Decimal("1e-3")),
    (re.compile(r"\d{19}"), "nanoseconds", Decimal("1e-6")),
)


def parse_time(text: str) -> int:
    """ms since the epoch. ISO 8601 without a zone is UTC. Raises InvalidRequest (bad_time).

    A number that looks like seconds, microseconds or nanoseconds is refused; the message has the right milliseconds.
    """
    for pattern, unit, unit_ms in _OTHER_UNITS:
        if pattern.fullmatch(text):
            ms = int(Decimal(text) * unit_ms)
            raise InvalidRequest(
                f"{text!r} looks like {unit}; times are ms since the epoch: write {ms} or {time_text(ms)}",
                reason="bad_time",
            )
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is neither ms since the epoch nor a time such as 2026-01-31T12:00:00Z", reason="bad_time"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def time_text(ms: int | None) -> str:
    """A time as ISO 8601 UTC with milliseconds; the number itself when it is outside the calendar."""
    if ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return str(ms)
