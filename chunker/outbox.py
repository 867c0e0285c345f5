"""Outbox: records of one partition in flight to `chunks`, sent again until the log has acknowledged them.

Sending again is safe: the same key always has the same bytes. Owned by the chunker's thread; answers come from any
thread.
"""

from __future__ import annotations

import threading
from collections import deque

from chunker.stage_metrics import StageMetrics
from tsdb.chunks.records import ChunkRecord
from tsdb.log.chains import chain_of
from tsdb.log.interface import CHUNKS, Appended, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.logs import get_logger

SEND_AGAIN_S = 0.5

log = get_logger(__name__)


class Outbox:
    """`changed` is set whenever an answer comes."""

    def __init__(
        self,
        log_: Log,
        partition: int,
        budget: ByteBudget,
        changed: threading.Event,
        clock: Clock,
        metrics: StageMetrics,
    ) -> None:
        self._log = log_
        self._partition = partition
        self._budget = budget
        self._changed = changed
        self._clock = clock
        self._metrics = metrics
        self._chain = chain_of("chunk-stage", clock.now_ms)
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._in_flight = 0
        self._failed: deque[ChunkRecord] = deque()
        self._fatal: TsdbError | None = None
        self._again_at = 0.0
        self._abandoned = False
        self.appends = 0
        """Records sent, repeats included. Written by the owner's thread."""
        self.failures = 0
        """Appends that failed; each is sent again unless its error is final."""

    def offer(self, record: ChunkRecord) -> bool:
        """Send a record. False: not sent, too many bytes are in flight."""
        if not self._budget.take(record.size):
            return False
        with self._lock:
            self._in_flight += 1
        self._send(record)
        return True

    def pump(self) -> None:
        """Send failed records again, when due. Raises the first error that sending again cannot solve."""
        with self._lock:
            if self._fatal is not None:
                raise self._fatal
            if not self._failed or self._clock.monotonic() < self._again_at:
                return
            failed, self._failed = self._failed, deque()
        for record in failed:
            self._send(record)

    @property
    def empty(self) -> bool:
        """Whether every offered record is acknowledged."""
        with self._lock:
            return self._in_flight == 0

    def abandon(self) -> None:
        """Stop sending again: the partition was given up. Records in flight may still be written."""
        with self._lock:
            self._abandoned = True
            failed, self._failed = self._failed, deque()
            self._in_flight -= len(failed)
        self._budget.give_back(sum(record.size for record in failed))

    def _send(self, record: ChunkRecord) -> None:
        def on_done(answer: Appended | TsdbError) -> None:
            self._answered(record, answer)

        self.appends += 1
        self._metrics.appends.inc()
        headers = () if record.due_ms is None else self._chain.first(due_at_ms=record.due_ms)
        try:
            self._log.append(CHUNKS, self._partition, record.value, key=record.key, headers=headers, on_done=on_done)
        except TsdbError as error:
            self._answered(record, error)

    def _answered(self, record: ChunkRecord, answer: Appended | TsdbError) -> None:
        with self._lock:
            done = isinstance(answer, Appended) or self._abandoned
            if done:
                self._in_flight -= 1
            elif isinstance(answer, TsdbError):
                self._fail(record, answer)
        if done:
            self._budget.give_back(record.size)
        self._changed.set()

    def _fail(self, record: ChunkRecord, error: TsdbError) -> None:
        self._metrics.append_failed(error.reason)
        self.failures += 1
        if not self._failed:
            log.warning("chunks not written yet", partition=self._partition, reason=error.reason, error=error.message)
        self._failed.append(record)
        self._again_at = self._clock.monotonic() + SEND_AGAIN_S
        if not isinstance(error, Unavailable | Overloaded):
            self._fatal = error
