"""Sending: a task appends records of one partition to `chunks` and ends only when all are acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable

from chunker.outbox import Outbox
from chunker.stage_metrics import StageMetrics
from tsdb.chunks.records import ChunkRecord
from tsdb.log.interface import Log
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.ops.byte_budget import ByteBudget

WAIT_S = 0.1


class RecordSender:
    """Appends with bounded bytes in flight. A failed append is repeated under the same key, for patience_s at most."""

    def __init__(self, log: Log, partition: int, inflight_bytes_max: int, clock: Clock, patience_s: float) -> None:
        self._partition = partition
        self._clock = clock
        self._patience_s = patience_s
        self._answered = threading.Event()
        metrics = StageMetrics("spark")
        self._outbox = Outbox(
            log, partition, ByteBudget(inflight_bytes_max, admits_one=True), self._answered, clock, metrics
        )
        self.records = 0
        self.bytes = 0

    def send(self, record: ChunkRecord) -> None:
        """Send one record; waits while too many bytes are in flight. Raises Unavailable (chunks_not_acknowledged), and
        final errors."""
        self._wait(lambda: self._outbox.offer(record))
        self.records += 1
        self.bytes += record.size

    def finish(self) -> None:
        """Return when every record is acknowledged. Raises as send."""
        self._wait(lambda: self._outbox.empty)

    @property
    def appends(self) -> int:
        """Records sent, repeated ones included."""
        return self._outbox.appends

    @property
    def failures(self) -> int:
        """Appends that failed and were sent again, or ended the task."""
        return self._outbox.failures

    def abandon(self) -> None:
        """Stop: failed records are not sent again."""
        self._outbox.abandon()

    def _wait(self, done: Callable[[], bool]) -> None:
        give_up_at = self._clock.monotonic() + self._patience_s
        while not done():
            self._answered.wait(WAIT_S)
            self._answered.clear()
            self._outbox.pump()
            if self._clock.monotonic() > give_up_at:
                raise Unavailable(
                    f"partition {self._partition} of `chunks` does not acknowledge for {self._patience_s:g} s",
                    reason="chunks_not_acknowledged",
                )
