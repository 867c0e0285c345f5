"""Parses and formats times and durations, for commands, the client and Spark alike: ms since the epoch, ISO 8601, or
relative to now. Numbers in other units are refused with a hint.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from tsdb.model.errors import InvalidRequest

Time = datetime | date | str | int
"""A datetime or date (UTC where it has no zone), text such as 2026-01-31T12:00Z or -1h, or int: ms since the epoch."""

_MS = timedelta(milliseconds=1)
DAY_MS = 86_400_000
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS, "y": 365 * DAY_MS}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SECONDS = re.compile(_NUMBER)
_PART = re.compile(rf"({_NUMBER})(ms|[smhdwy])")
_PARTS = re.compile(rf"(?:{_NUMBER}(?:ms|[smhdwy]))+")
_RELATIVE = re.compile(r"(now|today|yesterday)(?:-(.+))?")
_AGO = re.compile(r"-([0-9].*[a-z])")  # -1h. Without a unit it is ms before the epoch.
_SHOWN_CHARS_MAX = 200
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


def parse_duration(text: str) -> int:
    """Parse a duration such as 10m, 1.5h, 1h30m or 500ms to ms, above 0. A week has 7 days and a year 365, as in
    PromQL. A bare number is seconds. Raises InvalidRequest (bad_duration)."""
    found = 0.0
    if _SECONDS.fullmatch(text):
        found = float(text) * 1000
    elif _PARTS.fullmatch(text):
        found = sum(float(number) * UNITS_MS[unit] for number, unit in _PART.findall(text))
    # The comparison comes before the rounding, because a long number is infinite as a float.
    ms = round(found) if found < 1 << 53 else 0
    if ms == 0:
        shown = repr(text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "...")
        raise InvalidRequest(
            f"{shown} is not a duration such as 30s, 10m, 1.5h, 2d, 1w or 1y, from 1 ms", reason="bad_duration"
        )
    return ms


def parse_instant(text: str, now_ms: int) -> int:
    """Parse a time to ms since the epoch: as parse_time, or now, today or yesterday (their start, UTC), the last three
    also less a duration such as now-90m, or -1h, which is now-1h. Raises InvalidRequest."""
    ago = _AGO.fullmatch(text)
    if ago:
        return now_ms - parse_duration(ago[1])
    relative = _RELATIVE.fullmatch(text)
    if relative is None:
        return parse_time(text)
    today_ms = now_ms - now_ms % DAY_MS
    start_ms = {"now": now_ms, "today": today_ms, "yesterday": today_ms - DAY_MS}[relative[1]]
    return start_ms - (parse_duration(relative[2]) if relative[2] else 0)


def time_ms(name: str, time: Time, now_ms: int) -> int:
    """ms since the epoch; finer times are rounded down. name: the argument, for the error. Raises InvalidRequest
    (bad_time)."""
    if isinstance(time, datetime):
        if time != time:  # Only NaT of pandas differs from itself.
            raise InvalidRequest(f"{name} is NaT, which is no time", reason="bad_time")
        # A Timestamp of pandas is a datetime, and its difference a Timedelta.
        return int(((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MS)
    if isinstance(time, date):
        return (datetime(time.year, time.month, time.day, tzinfo=UTC) - _EPOCH) // _MS
    if isinstance(time, str) or type(time) is int:
        try:
            # Digits that look like seconds or microseconds are refused, for a number too.
            return parse_instant(str(time), now_ms)
        except InvalidRequest as error:
            raise InvalidRequest(f"{name}: {error.message}", reason="bad_time") from None
    raise InvalidRequest(
        f"{name} is {type(time).__name__}; want a datetime, a date, text such as 2026-01-31T12:00Z or -1h, or an int:"
        " ms since the epoch",
        reason="bad_time",
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
