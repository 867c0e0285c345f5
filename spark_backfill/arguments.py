"""Parses the arguments of the functions (times, durations, counts and packs) before any work."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from tsdb.model.errors import InvalidRequest
from tsdb.model.times import parse_time

Time = datetime | date | str | int
"""A datetime or date (UTC where it has no zone), text in ISO 8601 (the same), or int: ms since the epoch."""

_PACK = re.compile(r"[0-9a-fA-F]{1,16}")
_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_ms(name: str, time: Time) -> int:
    """ms since the epoch; finer times are rounded down. name: the argument, for the error. Raises InvalidRequest
    (bad_time)."""
    if isinstance(time, datetime):
        return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MS
    if isinstance(time, date):
        return (datetime(time.year, time.month, time.day, tzinfo=UTC) - _EPOCH) // _MS
    if isinstance(time, str) or type(time) is int:
        try:
            # Digits that look like seconds or microseconds are refused, for a number too.
            return parse_time(str(time))
        except InvalidRequest as error:
            raise InvalidRequest(f"{name}: {error.message}", reason="bad_time") from None
    raise InvalidRequest(
        f"{name} is {type(time).__name__}; want a datetime, a date, text in ISO 8601, or an int: ms since the epoch",
        reason="bad_time",
    )


def duration_ms(name: str, duration: timedelta) -> int:
    """A duration in whole ms, 0 or more. name: the argument, for the error. Raises InvalidRequest (bad_duration)."""
    if not isinstance(duration, timedelta):
        raise InvalidRequest(
            f"{name} is {duration!r}; want a datetime.timedelta, such as timedelta(hours=1)", reason="bad_duration"
        )
    if duration < timedelta():
        raise InvalidRequest(f"{name} is {duration}; want 0 or more", reason="bad_duration")
    return duration // _MS


def count(name: str, number: int) -> int:
    """A number of 1 or more. name: the argument, for the error. Raises InvalidRequest (bad_count)."""
    if type(number) is not int or number < 1:
        raise InvalidRequest(f"{name} is {number!r}; want an int of 1 or more", reason="bad_count")
    return number


def pack_ids(packs: Iterable[str] | None) -> frozenset[int] | None:
    """Ids of packs from hexadecimal text; None or empty: all packs. Raises InvalidRequest (bad_pack)."""
    if isinstance(packs, str):
        raise InvalidRequest(f"packs is text; want a list, such as [{packs[:16]!r}]", reason="bad_pack")
    texts = list(packs or ())
    for text in texts:
        if not isinstance(text, str) or not _PACK.fullmatch(text):
            raise InvalidRequest(f"a pack is 16 hexadecimal digits; got {text!r}", reason="bad_pack")
    return frozenset(int(text, 16) for text in texts) or None
