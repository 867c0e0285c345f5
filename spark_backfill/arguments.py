"""Parses the arguments of the functions (times, durations, counts and packs) before any work."""

from __future__ import annotations

import re
import time as clock
from collections.abc import Iterable
from datetime import timedelta

from tsdb.model import times
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import Time

_PACK = re.compile(r"[0-9a-fA-F]{1,16}")
_MS = timedelta(milliseconds=1)


def time_ms(name: str, time: Time) -> int:
    """tsdb.model.times.time_ms, relative to now."""
    return times.time_ms(name, time, clock.time_ns() // 1_000_000)


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
