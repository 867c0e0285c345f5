"""Ticker: appends records without samples to an idle partition when a window or a late minute waits for broker time."""

from __future__ import annotations

import math

from tsdb.chunks.stage_metrics import StageMetrics
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS, Appended, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger

IDLE_S = 0.5  # After this time at the end of the log, no record is under way that would move broker time.
AGAIN_S = 0.5  # A broker whose clock is behind this process's clock needs a further tick.

log = get_logger(__name__)


class Ticker:
    """Ticks for one partition. One thread."""

    def __init__(self, log_: Log, partition: int, clock: Clock, metrics: StageMetrics) -> None:
        self._log = log_
        self._partition = partition
        self._clock = clock
        self._metrics = metrics
        self._idle_since: float | None = None
        self._again_at = 0.0

    def rest_s(self, due_ms: int) -> float:
        """Seconds until `tick_if_due` may append a tick, while the partition stays at its end."""
        if self._idle_since is None:
            return math.inf
        idle_until = max(self._again_at, self._idle_since + IDLE_S)
        return max(idle_until - self._clock.monotonic(), (due_ms - self._clock.now_ms()) / 1000)

    def tick_if_due(self, *, at_end: bool, due_ms: int) -> None:
        """Append a tick if the partition has been at its end for IDLE_S and this process's clock has passed due_ms."""
        now = self._clock.monotonic()
        if not at_end:
            self._idle_since = None
            return
        if self._idle_since is None:
            self._idle_since = now
        now_ms = self._clock.now_ms()
        if now < max(self._again_at, self._idle_since + IDLE_S) or now_ms < due_ms:
            return
        self._again_at = now + AGAIN_S
        self._metrics.ticks.inc()
        try:
            # The broker uses this timestamp only where the topic is set to CreateTime.
            self._log.append(METRICS, self._partition, encode_tick(), timestamp_ms=now_ms, on_done=self._answered)
        except TsdbError as error:
            self._answered(error)

    def _answered(self, answer: Appended | TsdbError) -> None:
        if isinstance(answer, TsdbError):
            self._metrics.tick_failures.inc()
            log.warning("tick not appended", partition=self._partition, reason=answer.reason, error=answer.message)
