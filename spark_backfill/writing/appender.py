"""Appender: append records to one topic with bounded bytes in flight, and repeat failed appends.

For a task, which has one thread and may block. Repeating an append is safe because the key identifies the record.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tsdb.log.interface import Appended, Log
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

INFLIGHT_BYTES_MAX = 8 << 20  # Limit of one task. Kafka answers within a millisecond, and a machine runs many tasks.
SEND_AGAIN_S = 0.5
GIVE_UP_S = 120.0  # After this time with failures only, the task fails, and Spark decides whether to repeat it.

log = get_logger(__name__)

appends_total = counter("tsdb_spark_appends_total", "Records that tasks sent to the log, those sent again included.")
append_failures_total = counter(
    "tsdb_spark_append_failures_total", "Appends of tasks that failed, by reason; sent again if of use.", label="reason"
)


@dataclass(frozen=True, slots=True)
class _Record:
    partition: int
    key: bytes
    value: bytes | None

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value or b"")


class TaskAppender:
    """Used by one thread; answers come from other threads. Call `finish` before the task ends; no close is needed."""

    def __init__(
        self,
        log_: Log,
        topic: str,
        *,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
        give_up_s: float = GIVE_UP_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log_
        self._topic = topic
        self._inflight_bytes_max = inflight_bytes_max
        self._give_up_s = give_up_s
        self._now_s = now_s
        self._changed = threading.Condition()  # Guards the fields below, up to `_fatal`.
        self._bytes = 0
        self._records = 0
        self._failed: deque[_Record] = deque()
        self._again_at = 0.0
        self._failing_since: float | None = None
        self._fatal: TsdbError | None = None
        self.sent_records = 0
        self.sent_bytes = 0

    def send(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Send a record; wait while too many bytes are in flight. Raises errors that a repeat cannot mend."""
        record = _Record(partition, key, value)
        self._wait(lambda: not self._records or self._bytes + record.size <= self._inflight_bytes_max)
        with self._changed:
            self._records += 1
            self._bytes += record.size
        self.sent_records += 1
        self.sent_bytes += record.size
        self._append(record)

    def finish(self) -> None:
        """Wait until the log has every record. Raises errors that a repeat cannot mend, and the last failure after
        give_up_s without a success."""
        self._wait(lambda: not self._records)

    def _wait(self, enough: Callable[[], bool]) -> None:
        while True:
            with self._changed:
                if self._fatal is not None:
                    raise self._fatal
                if enough():
                    return
                due_s = self._again_at - self._now_s() if self._failed else SEND_AGAIN_S
                if due_s > 0:
                    self._changed.wait(due_s)
                    continue
                again, self._failed = self._failed, deque()
            for record in again:
                self._append(record)

    def _append(self, record: _Record) -> None:
        appends_total.inc()
        try:
            self._log.append(
                self._topic,
                record.partition,
                record.value,
                key=record.key,
                on_done=partial(self._answered, record),
            )
        except TsdbError as error:
            self._answered(record, error)

    def _answered(self, record: _Record, answer: Appended | TsdbError) -> None:
        with self._changed:
            if isinstance(answer, TsdbError):
                self._fail_locked(record, answer)
            else:
                self._records -= 1
                self._bytes -= record.size
                self._failing_since = None
            self._changed.notify_all()

    def _fail_locked(self, record: _Record, error: TsdbError) -> None:
        append_failures_total.labels(error.reason).inc()
        if self._failing_since is None:
            self._failing_since = self._now_s()
            log.warning("not appended yet", topic=self._topic, reason=error.reason, error=error.message)
        self._failed.append(record)
        self._again_at = self._now_s() + SEND_AGAIN_S
        given_up = self._now_s() - self._failing_since >= self._give_up_s
        if given_up or not isinstance(error, Unavailable | Overloaded):
            self._fatal = error
