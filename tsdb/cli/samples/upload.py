"""Upload: sends rows in requests of bounded size and counts the results.

Replay of recorded samples as if they happened now: times are moved, and each sample is sent at its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsdb.cli.samples.rows import SampleRows
from tsdb.client import Client, WriteResult
from tsdb.model.clock import Clock
from tsdb.model.errors import InvalidRequest

REQUEST_ROWS = 50_000  # 1.2 MB: large enough to hide the acknowledgement, small enough to hold and resend.
OFFENDERS_SHOWN = 20

GATHER_S = 0.1  # Shortest time between two sends, so that a request collects the samples due meanwhile.


@dataclass(slots=True)
class Tally:
    """The result of `tsdb write`. refused: number of samples that the gateway refused. offenders: some of the
    reasons.
    """

    samples: int = 0
    requests: int = 0
    refused: int = 0
    series: set[bytes] = field(default_factory=set)
    offenders: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def count(self, result: WriteResult) -> None:
        """Add the result of one write."""
        self.samples += result.samples
        self.requests += result.requests
        self.refused += result.refused_samples
        reasons = [f"{offender.message} ({offender.reason})" for offender in result.offenders]
        self.offenders.extend(reasons[: OFFENDERS_SHOWN - len(self.offenders)])

    def summary(self) -> dict[str, int | float]:
        """The values for the output."""
        return {
            "samples": self.samples,
            "series": len(self.series),
            "requests": self.requests,
            "seconds": round(time.monotonic() - self.started, 3),
            "refused": self.refused,
        }


class Upload:
    """Sends rows through a client. `progress` is called with the number of rows done."""

    def __init__(self, client: Client, progress: Callable[[int], None]) -> None:
        self._client = client
        self._progress = progress
        self.tally = Tally()

    def send(self, rows: SampleRows, start: int = 0, end: int | None = None) -> None:
        """Send rows [start, end) in order, in requests of at most REQUEST_ROWS. A refused series stops no other."""
        for first in range(start, len(rows) if end is None else end, REQUEST_ROWS):
            last = min(first + REQUEST_ROWS, len(rows) if end is None else end)
            self.tally.count(self._client.write(rows.batch(first, last), partial=True))
            self._progress(last - first)

    def saw(self, rows: SampleRows) -> None:
        """Count the series of rows before they are sent."""
        self.tally.series.update(rows.labels)


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
