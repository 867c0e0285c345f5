"""Idle partitions: ticks where a partition has been at its end for a while and a window or late samples wait for time.

The same rule as the chunker's, found from the log: the few records behind the committed position are read once each
time that the partition comes to rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chunker.ticker import Ticker
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.reading import read_into
from tsdb.chunks.late_scan import LateScan
from tsdb.chunks.progress import Progress
from tsdb.log.interface import Log, Watermarks
from tsdb.model.clock import Clock
from tsdb.model.window import floor_to

SCAN_RECORDS_MAX = 200_000  # With more behind the position a batch is on its way that will move it.
SCAN_STEP_RECORDS = 100  # Held at a time, or twice as many: this is done on the driver, which has no room for more.


@dataclass(frozen=True, slots=True)
class Rest:
    """How a partition came to rest: high watermark and position then, and the broker time that it waits for."""

    high: int
    position: int
    due_ms: int


class IdleTicks:
    """Of all partitions; one thread. `look` as often as wanted."""

    def __init__(self, log: Log, options: BuildOptions, clock: Clock) -> None:
        self._log = log
        self._options = options
        self._clock = clock
        self._tickers: dict[int, Ticker] = {}
        self._highs: dict[int, int] = {}
        self._rests: dict[int, Rest] = {}

    def look(self, done: Mapping[int, Progress], marks: Mapping[int, Watermarks]) -> None:
        """Tick where it is due. Raises Unavailable."""
        for number, progress in done.items():
            high = marks[number].high
            at_end = self._highs.get(number) == high
            self._highs[number] = high
            ticker = self._tickers.setdefault(number, Ticker(self._log, number, self._clock))
            due_ms = self._due_ms(number, progress, high) if at_end else 0
            ticker.look(at_end=at_end and due_ms is not None, due_ms=due_ms or 0)

    def _due_ms(self, number: int, progress: Progress, high: int) -> int | None:
        if high - progress.position > SCAN_RECORDS_MAX:
            return None
        rest = self._rests.get(number)
        if rest is None or (rest.high, rest.position) != (high, progress.position):
            rest = self._rests[number] = Rest(high, progress.position, self._scan(number, progress, high))
        return rest.due_ms

    def _scan(self, number: int, progress: Progress, high: int) -> int:
        options, times = self._options, self._options.times
        scan = LateScan(number, progress.position, times=times, slices=options.slices)
        stretch = progress.position, high, times, self._clock, options.patience_s
        for _ in read_into(scan, self._log, number, *stretch, SCAN_STEP_RECORDS):
            for _ in scan.records():
                pass
        closed_ms = progress.emitted_through_ms
        if scan.watermark_ms is not None:
            closed_ms = max(closed_ms, floor_to(scan.watermark_ms - times.grace_ms, times.window_ms))
        next_close_ms = closed_ms + times.window_ms + times.grace_ms
        return next_close_ms if scan.waits_until_ms is None else min(next_close_ms, scan.waits_until_ms)
