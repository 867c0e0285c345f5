"""Windows and index epochs: compute half-open stretches of sample time, by pure arithmetic on milliseconds UTC."""

from __future__ import annotations

TIME_MAX_MS = 1 << 61  # Bound of a read. Ranges beyond it would leave 64 bits in the arithmetic of steps.
LONG_AGO_MS = -(1 << 60)  # A time before any sample.
# Range of the timestamps of Spark and Arrow, int64 microseconds. Imports refuse other times.
TS_MS_MIN, TS_MS_MAX = -(1 << 63) // 1_000 + 1, (1 << 63) // 1_000 - 1
EPOCH_MS = 30 * 24 * 3600 * 1000  # Length of an index epoch: 30 days of sample time.


def floor_to(ts_ms: int, length_ms: int) -> int:
    """Start of the aligned interval of `length_ms` that holds ts_ms; right for times before 1970 too."""
    return ts_ms - ts_ms % length_ms


def ceil_to(ts_ms: int, length_ms: int) -> int:
    """First multiple of `length_ms` at or after ts_ms."""
    return -(-ts_ms // length_ms) * length_ms


def window_start(ts_ms: int, window_ms: int) -> int:
    """Start of the window [start, start + window_ms) that holds ts_ms; windows are aligned to the Unix epoch."""
    return floor_to(ts_ms, window_ms)


def window_end(ts_ms: int, window_ms: int) -> int:
    """End (exclusive) of the window that holds ts_ms."""
    return floor_to(ts_ms, window_ms) + window_ms


def index_epoch(series_id: int, ts_ms: int) -> int:
    """Index epoch of a series at a sample time. Each series has another phase, so no instant renews all series."""
    return (ts_ms + series_id % EPOCH_MS) // EPOCH_MS


def index_epoch_start_ms(series_id: int, epoch: int) -> int:
    """First sample time (inclusive) of an index epoch of this series."""
    return epoch * EPOCH_MS - series_id % EPOCH_MS


def index_epoch_end_ms(series_id: int, epoch: int) -> int:
    """End (exclusive) of an index epoch of this series, in sample time."""
    return index_epoch_start_ms(series_id, epoch) + EPOCH_MS
