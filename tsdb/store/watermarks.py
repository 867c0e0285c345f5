"""Watermark poller: fetches fresh high watermarks for readiness, on a separate thread.

Separate from the workers, because a worker that hangs must not also hide its lag.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.periodic import Periodic
from tsdb.store.partition import Partition

EVERY_S = 0.5

log = get_logger(__name__)

polls_total = counter("tsdb_store_watermark_polls_total", "Requests for fresh high watermarks.")
poll_failures_total = counter("tsdb_store_watermark_poll_failures_total", "Requests for high watermarks that failed.")


class WatermarkPoller(Periodic):
    """Keeps each partition's high watermark fresh. When requests fail, the watermarks age and readiness reports it. The
    store polls once before `start`."""

    def __init__(self, log_: Log, partitions: Mapping[int, Partition], clock: Clock) -> None:
        super().__init__("watermarks", EVERY_S, self.poll, at_once=False)
        self._log = log_
        self._partitions = partitions
        self._clock = clock
        self._failing = False
        self._polled = threading.Condition()  # Guards the numbers of requests that began, and of the last that ended.
        self._begun = self._ended = 0

    def refresh(self, within_s: float) -> None:
        """Fetch high watermarks now. Returns after `within_s` at the latest, and at once while the log does not answer.

        Callers that wait together share one request: the first that begins after the last of them came.
        """
        with self._polled:
            wanted = self._begun + 1
            if not self._failing:
                self.wake()
                self._polled.wait_for(lambda: self._ended >= wanted, within_s)

    def poll(self) -> None:
        """Send one request for all partitions."""
        with self._polled:
            self._begun += 1
        self._poll()
        with self._polled:
            self._ended = self._begun
            self._polled.notify_all()

    def _poll(self) -> None:
        polls_total.inc()
        # The time before the request: the answer is at least as fresh.
        at = self._clock.monotonic()
        try:
            highs = self._log.high_watermarks(METRICS, list(self._partitions))
        except TsdbError as error:
            poll_failures_total.inc()
            if not self._failing:
                log.warning("high watermarks not available", error=error.message)
            self._failing = True
            return
        self._failing = False
        for number, high in highs.items():
            self._partitions[number].observe_high_watermark(high, at)
