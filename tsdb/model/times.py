"""Parses and formats times: ms since the epoch or ISO 8601. Numbers in other units are refused with a hint."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from tsdb.model.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMAL = re.compile(r"(-?\d{1,18})\.(\d*)")
_WHOLE = re.compile(r"-?\d+")
_FRACTION = re.compile(r"[.,]\d{3}(\d*)")
_INTEGER = re.compile(r"-?\d{1,18}")
# The current time has 10 digits in s, 13 in ms, 16 in us, 19 in ns. Read as ms, the first is in 1970 and the last two
# are far in the future.
_OTHER_UNITS = (
    (re.compile(r"\d{10}(\.\d*)?"), "seconds", Decimal(1000)),
    (re.compile(r"\d{16}"), "microseconds", Decimal("1e-3")),
    (re.compile(r"\d{19}"), "nanoseconds", Decimal("1e-6")),
)


def parse_time(text: str) -> int:
    """Parse a time to ms since the epoch. ISO 8601 without a zone is UTC. Raises InvalidRequest (bad_time).

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
    return round(_moment(text).timestamp() * 1000)


def parse_sample_time(text: str, *, rounded: bool) -> int:
    """The time of a sample: as parse_time, or a number of ms with a fraction.

    A rest below a millisecond is rounded down with `rounded`, else refused (fine_time).
    """
    number = _DECIMAL.fullmatch(text)
    if number or _WHOLE.fullmatch(text):
        ms, fine = parse_time(number[1] if number else text), bool(number and number[2].strip("0"))
        ms -= fine and text.startswith("-")
    else:
        ms = (_moment(text) - _EPOCH) // timedelta(milliseconds=1)
        # Digits from the text, because a datetime ends at microseconds.
        fraction = _FRACTION.search(text)
        fine = bool(fraction and fraction[1].strip("0"))
    if fine and not rounded:
        raise fine_time(repr(text))
    return ms


def fine_time(shown: str) -> InvalidRequest:
    """The refusal of a time with digits below a millisecond."""
    return InvalidRequest(
        f"{shown} is finer than a millisecond, and times are whole ms: --round-times rounds down", reason="fine_time"
    )


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is neither ms since the epoch nor a time such as 2026-01-31T12:00:00Z", reason="bad_time"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def time_text(ms: int | None) -> str:
    """A time as ISO 8601 UTC with milliseconds, or the number itself when it is outside the calendar."""
    if ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return str(ms)
