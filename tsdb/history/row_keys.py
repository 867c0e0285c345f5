"""Row keys: ids and times to the keys of rows, the same in every store (docs/formats/cassandra.md).

Ids are unsigned here and signed in every database, with the same bits. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tsdb.history.interface import TokenRange, WindowRange

# A row key holds one pack for a month: 180 windows of 4 h. The window length divides it, so no window is in two months.
MONTH_MS = 30 * 24 * 3600 * 1000
# Row keys for the series of one metric and epoch: with a million series each holds about 40 MiB.
SERIES_BUCKETS = 8
TOKEN_MIN = -(1 << 63)
TOKEN_MAX = (1 << 63) - 1

_BIAS = 1 << 64


def signed(number: int) -> int:
    """The int64 with the bits of a uint64."""
    return number - _BIAS if number > TOKEN_MAX else number


def unsigned(number: int) -> int:
    """The uint64 with the bits of an int64."""
    return number + _BIAS if number < 0 else number


def month_of(window_start_ms: int) -> int:
    """Number of the month that holds a window."""
    return window_start_ms // MONTH_MS


def months_of(windows: WindowRange) -> Iterator[int]:
    """Months with a window in the range, ascending."""
    if windows.start_ms < windows.end_ms:
        yield from range(month_of(windows.start_ms), month_of(windows.end_ms - 1) + 1)


def bucket_of(series_id: int) -> int:
    """Bucket of a series among those of its metric."""
    return series_id % SERIES_BUCKETS


def even_token_ranges(count: int) -> list[TokenRange]:
    """The whole ring in `count` ranges of equal size, in order."""
    assert count > 0, f"got a count of {count} token ranges"
    borders = [TOKEN_MIN + (_BIAS - 1) * at // count for at in range(count + 1)]
    return [TokenRange(after, through) for after, through in pairwise(borders)]
