"""Sending: records of one partition to `chunks` from within a task, which ends only when all are acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable

from chunker.outbox import Budget, Outbox
from tsdb.chunks.records import ChunkRecord
from tsdb.log.interface import Log
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable

WAIT_S = 0.1


class Sender:
    """Bounded bytes in flight; what fails is sent again, under the same key, until patience_s without any answer."""

    def __init__(self, log: Log, partition: int, inflight_bytes_max: int, clock: Clock, patience_s: float) -> None:
        self._partition = partition
        self._clock = clock
        self._patience_s = patience_s
        self._answered = threading.Event()
        self._outbox = Outbox(log, partition, Budget(inflight_bytes_max), self._answered, clock)
        self.records = 0
        self.bytes = 0

    def send(self, record: ChunkRecord) -> None:
        """Send one, waiting for room. Raises Unavailable (chunks_not_acknowledged), and what would fail again."""
        self._wait(lambda: self._outbox.offer(record))
        self.records += 1
        self.bytes += record.size

    def finish(self) -> None:
        """Return once everything is acknowledged. Raises as send."""
        self._wait(lambda: self._outbox.empty)

    @property
    def appends(self) -> int:
        """Records sent, those sent again included."""
        return self._outbox.appends

    def abandon(self) -> None:
        """Send nothing again."""
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
