"""Writer: the thread that writes the canary's samples and measures when a read shows them."""

from __future__ import annotations

import numpy as np

from tsdb.canary.canary_metrics import checks_total, failures_total, freshness, last_success
from tsdb.canary.comparison import compare
from tsdb.canary.layout import Layout, values_of
from tsdb.canary.ledger import Ledger
from tsdb.client import Client, WriteBatch
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import ThreadComponent

VISIBLE_SHARE = 0.8  # Share of the period. The rest is for the next write.
POLL_S = 0.005
POLL_S_MAX = 0.25
WRITE_TIMEOUT_S = 10.0
ATTEMPT_S_MIN = 0.05

log = get_logger(__name__)


class Writer(ThreadComponent):
    """Writes one sample of each series at each multiple of the period. A time that passes during a longer write or
    wait is left out."""

    def __init__(self, gateway: Client, reader: Client, layout: Layout, ledger: Ledger, clock: Clock) -> None:
        super().__init__("canary-writer")
        self._gateway = gateway
        self._reader = reader
        self._layout = layout
        self._ledger = ledger
        self._clock = clock
        self._visible_s = VISIBLE_SHARE * layout.period_ms / 1000
        self.turn_at = clock.monotonic()  # Start of the last turn, for liveness.

    def write(self, ts_ms: int) -> None:
        """Write the samples of one time. Raises the TsdbError of a refused write."""
        layout = self._layout
        times = np.full(layout.series, ts_ms, np.int64)
        runs = np.full(layout.series, self._ledger.run_before(ts_ms), np.int64)
        batch = WriteBatch()
        batch.add_columns(
            layout.labels,
            np.ones(layout.series, np.uint32),
            times,
            values_of(np.arange(layout.series, dtype=np.int64), times, runs),
        )
        checks_total.labels("write").inc()
        try:
            written = self._gateway.write(batch, timeout_s=WRITE_TIMEOUT_S)
        except TsdbError as error:
            failures_total.labels("write", error.reason).inc()
            raise
        self._ledger.acknowledge(ts_ms, written.tokens)
        last_success.labels("write").set(self._clock.now_ms() / 1000)

    def measure(self, ts_ms: int) -> None:
        """Wait until a read shows the samples of a time that was just acknowledged, at most 8 tenths of the period."""
        began, delay_s = self._clock.monotonic(), POLL_S
        checks_total.labels("freshness").inc()
        while True:
            left_s = began + self._visible_s - self._clock.monotonic()
            reason = self._look(ts_ms, max(left_s, ATTEMPT_S_MIN))
            took_s = self._clock.monotonic() - began
            if not reason:
                freshness.observe(took_s)
                last_success.labels("freshness").set(self._clock.now_ms() / 1000)
                return
            if took_s >= self._visible_s or self._closing.wait(delay_s):
                break
            delay_s = min(delay_s * 1.5, POLL_S_MAX)
        if not self._closing.is_set():
            failures_total.labels("freshness", reason).inc()
            log.warning("write not visible in time", reason=reason, waited_s=round(took_s, 3))

    def _look(self, ts_ms: int, timeout_s: float) -> str:
        """Reason why the samples are not visible; empty when they are."""
        try:
            found = self._reader.select(self._layout.selector, ts_ms, ts_ms + 1, timeout_s=timeout_s)
        except TsdbError as error:
            return error.reason
        returned = ((series.canonical, series.ts_ms, series.values) for series in found.series)
        findings = compare(self._layout, returned, np.array([ts_ms]), np.ones(1, np.bool_)).findings
        return "differs" if findings.mismatch or findings.unexpected else "not_visible" if findings.missing else ""

    def _run(self) -> None:
        while not self._closing.is_set():
            self.turn_at = self._clock.monotonic()
            newest = self._ledger.newest
            ts_ms = self._layout.tick_ms(self._clock.now_ms())
            if newest is None or ts_ms > newest.ts_ms:
                self._write_and_measure(ts_ms)
            self._closing.wait(
                self._layout.tick_ms(ts_ms + self._layout.period_ms) / 1000 - self._clock.now_ms() / 1000
            )

    def _write_and_measure(self, ts_ms: int) -> None:
        try:
            self.write(ts_ms)
        except TsdbError as error:
            log.warning("write failed", reason=error.reason, error=error.message)
            return
        self.measure(ts_ms)
