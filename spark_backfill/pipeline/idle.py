"""Idle partitions: append ticks to a partition without new records while a window or late samples wait for log time.

The rule is the chunker's. The driver finds the due time from the log: each time a partition comes to rest, it reads the
few records after the committed position once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chunker.ticker import Ticker
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.reading import read_into
from tsdb.chunks.late_scan import LateScan
from tsdb.chunks.progress import Progress
from tsdb.chunks.stage_metrics import StageMetrics
from tsdb.log.interface import Log, Watermarks
from tsdb.model.clock import Clock
from tsdb.model.window import floor_to

SCAN_RECORDS_MAX = 200_000  # With more records after the position a batch is under way, which will move the position.
SCAN_STEP_RECORDS = 100  # At most 200 records are in memory at a time: the scan runs on the driver, with little memory.


@dataclass(frozen=True, slots=True)
class Rest:
    """A partition at rest: its high watermark and position at that moment, and the broker time that it waits for."""

    high: int
    position: int
    due_ms: int


class IdleTicks:
    """Ticks of all partitions. One thread calls `look`, at any interval."""

    def __init__(self, log: Log, options: BuildOptions, clock: Clock, metrics: StageMetrics) -> None:
        self._log = log
        self._options = options
        self._clock = clock
        self._metrics = metrics
        self._tickers: dict[int, Ticker] = {}
        self._highs: dict[int, int] = {}
        self._rests: dict[int, Rest] = {}

    def look(self, done: Mapping[int, Progress], marks: Mapping[int, Watermarks]) -> None:
        """Append a tick to each partition where one is due. Raises Unavailable."""
        for number, progress in done.items():
            high = marks[number].high
            at_end = self._highs.get(number) == high
            self._highs[number] = high
            ticker = self._tickers.setdefault(number, Ticker(self._log, number, self._clock, self._metrics))
            due_ms = self._due_ms(number, progress, high) if at_end else 0
            ticker.tick_if_due(at_end=at_end and due_ms is not None, due_ms=due_ms or 0)

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
