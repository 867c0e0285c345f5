"""Reads the arguments of calls: times of several types become ms, and bad arguments InvalidRequest, like every other
problem of a request.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import Any, overload

import numpy as np

from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels
from tsdb.model.times import parse_duration, time_ms


@contextmanager
def arguments_of(what: str) -> Iterator[None]:
    """Raises InvalidRequest (bad_argument) for values of a wrong type or size. Also usable as a decorator."""
    try:
        yield
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InvalidRequest(f"{what}: {error}", reason="bad_argument") from error


Time = int | str | datetime | date | np.datetime64
"""ms since epoch UTC; a datetime, a Timestamp of pandas or a numpy datetime, UTC without a zone; or text such as
2026-01-31T12:00Z, now, -1h or yesterday."""
Step = int | str | timedelta
"""ms, a timedelta, or text such as 1m."""


@overload
def ms_of(name: str, value: Time) -> int: ...
@overload
def ms_of(name: str, value: Time | None) -> int | None: ...
def ms_of(name: str, value: Time | None) -> int | None:
    """ms since the epoch; finer times are rounded down. Raises ValueError, for `arguments_of`."""
    if value is None or (isinstance(value, int | np.integer) and not isinstance(value, bool)):
        return value if value is None else int(value)
    if isinstance(value, float | np.floating):
        # Floats are most often seconds, so they are refused instead of guessed.
        raise ValueError(
            f"{name} is the float {value!r}: give an int, ms since epoch UTC (seconds: round(seconds * 1000)), a"
            " datetime or text such as -1h"
        )
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise ValueError(f"{name} is NaT, which is no time")
        return int(value.astype("datetime64[ms]").astype(np.int64))
    try:
        return time_ms(name, value, time.time_ns() // 1_000_000)
    except InvalidRequest as error:
        raise ValueError(error.message) from None


def step_ms_of(name: str, value: Step) -> int:
    """A step in ms; 0 for none. Raises ValueError, for `arguments_of`."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except InvalidRequest as error:
            raise ValueError(f"{name}: {error.message}") from None
    if isinstance(value, bool | float):
        raise ValueError(f"{name} is {value!r}: give an int of ms, a timedelta or text such as 1m")
    return int(value)


def labels_of(labels: Mapping[str, str] | bytes) -> bytes:
    """Canonical labels. Raises TypeError, for `arguments_of`, and InvalidRequest (labels_malformed)."""
    if isinstance(labels, bytes):
        return labels
    if isinstance(labels, Mapping):
        return canonical_labels(labels)
    given: Any = labels
    raise TypeError(
        f'labels are {given!r} ({type(given).__name__}): give a dict such as {{"__name__": "up", "job": "demo"}}'
    )
