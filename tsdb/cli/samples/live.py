"""Replay of recorded samples as if they happened now: times are moved, and each sample is sent at its time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tsdb.model.clock import Clock
from tsdb.model.errors import InvalidRequest

GATHER_S = 0.1  # Shortest time between two sends, so that a request collects the samples due meanwhile.


def live_times(ts_ms: NDArray[np.int64], base_ms: int, speed: float) -> NDArray[np.int64]:
    """base_ms + (ts_ms - first) // speed, in whole ms; ts_ms ascending. A whole speed divides exactly."""
    if not 0 < speed < float("inf"):
        raise InvalidRequest(f"speed is {speed}; it must be above 0", reason="bad_speed")
    if not len(ts_ms):
        return ts_ms
    elapsed = ts_ms - ts_ms[0]
    scaled = elapsed // int(speed) if float(speed).is_integer() else np.floor_divide(elapsed, speed).astype(np.int64)
    moved: NDArray[np.int64] = scaled + base_ms
    return moved


def send_as_due(ts_ms: NDArray[np.int64], clock: Clock, send: Callable[[int, int], None]) -> None:
    """Call send(start, end) for rows that are due, in order, until all are sent. ts_ms: ascending.

    No row is sent early. After a delay all overdue rows are sent at once.
    """
    start = 0
    while start < len(ts_ms):
        now_ms = clock.now_ms()
        end = int(np.searchsorted(ts_ms, now_ms, side="right"))
        if end > start:
            send(start, end)
            start = end
        if start < len(ts_ms):
            wait_s = (int(ts_ms[start]) - clock.now_ms()) / 1000
            clock.sleep(max(wait_s, GATHER_S))
