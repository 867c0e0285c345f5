"""Outbox: records in flight to one topic, sent again until the log has acknowledged them.

Sending again is safe where the same key always has the same value: a repeat changes nothing. Owned by one thread;
answers come from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tsdb.log.interface import Appended, Headers, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.logs import get_logger

SEND_AGAIN_S = 0.5

log = get_logger(__name__)


class AppendCounts(Protocol):
    """Metrics of the owner of an outbox."""

    def append_sent(self) -> None:
        """A record was sent, for the first time or again."""

    def append_failed(self, reason: str) -> None:
        """An append failed. It is repeated, unless its error is final."""


@dataclass(frozen=True, slots=True)
class _Record:
    partition: int
    key: bytes
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value or b"")


class Outbox:
    """budget: the budget of the bytes of key and value in flight; several outboxes may share it. changed: set at each
    answer.
    """

    def __init__(
        self, log_: Log, topic: str, budget: ByteBudget, changed: threading.Event, clock: Clock, counts: AppendCounts
    ) -> None:
        self._log = log_
        self._topic = topic
        self._budget = budget
        self._changed = changed
        self._clock = clock
        self._counts = counts
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._in_flight = 0
        self._failed: deque[_Record] = deque()
        self._fatal: TsdbError | None = None
        self._again_at = 0.0
        self._abandoned = False
        self.appends = 0
        """Records sent, repeats included. Written by the owner's thread."""
        self.failures = 0
        """Appends that failed; each is sent again unless its error is final."""
        self.acknowledged = 0
        """Records that the log has acknowledged."""
        self.last_failure: TsdbError | None = None
        """The error of the latest append that failed; None after an acknowledgement."""

    def offer(self, partition: int, key: bytes, value: bytes | None, headers: Headers = ()) -> bool:
        """Send a record. False: not sent, too many bytes are in flight."""
        record = _Record(partition, key, value, headers)
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
        """Stop sending again. Records in flight may still be written."""
        with self._lock:
            self._abandoned = True
            failed, self._failed = self._failed, deque()
            self._in_flight -= len(failed)
        self._budget.give_back(sum(record.size for record in failed))

    def _send(self, record: _Record) -> None:
        self.appends += 1
        self._counts.append_sent()
        on_done = partial(self._answered, record)
        try:
            self._log.append(
                self._topic,
                record.partition,
                record.value,
                key=record.key,
                headers=record.headers,
                on_done=on_done,
            )
        except TsdbError as error:
            on_done(error)

    def _answered(self, record: _Record, answer: Appended | TsdbError) -> None:
        with self._lock:
            if isinstance(answer, Appended):
                self.acknowledged += 1
                self.last_failure = None
            elif not self._abandoned:
                self._fail_locked(record, answer)
            done = isinstance(answer, Appended) or self._abandoned
            if done:
                self._in_flight -= 1
        if done:
            self._budget.give_back(record.size)
        self._changed.set()

    def _fail_locked(self, record: _Record, error: TsdbError) -> None:
        self._counts.append_failed(error.reason)
        self.failures += 1
        self.last_failure = error
        if not self._failed:
            log.warning(
                "records not appended yet",
                topic=self._topic,
                partition=record.partition,
                reason=error.reason,
                error=error.message,
            )
        self._failed.append(record)
        self._again_at = self._clock.monotonic() + SEND_AGAIN_S
        if not isinstance(error, Unavailable | Overloaded):
            self._fatal = error
