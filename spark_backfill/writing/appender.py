"""Appender of a task, which has one thread and may block: an outbox that is waited for.

Repeating an append is safe because the key identifies the record.

Tasks announce series in the topic `series`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_backfill.failures import quoted_errors
from spark_backfill.places import Places
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.rows import unsigned
from tsdb.log.interface import SERIES, Headers, Log
from tsdb.log.outbox import AppendCounts, Outbox
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.errors import Unavailable
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.metrics import counter

INFLIGHT_BYTES_MAX = 8 << 20  # Limit of one task. Kafka answers within a millisecond, and a machine runs many tasks.
GIVE_UP_S = 120.0  # After this time without an acknowledgement, the task fails, and Spark decides whether to repeat it.
WAIT_S = 0.1

appends_total = counter("tsdb_spark_appends_total", "Records that tasks sent to the log, those sent again included.")
append_failures_total = counter(
    "tsdb_spark_append_failures_total", "Appends of tasks that failed, by reason; sent again if of use.", label="reason"
)


class _Counts:
    """Metrics of tasks outside the chunk stage."""

    def append_sent(self) -> None:
        appends_total.inc()

    def append_failed(self, reason: str) -> None:
        append_failures_total.labels(reason).inc()


class TaskAppender:
    """Used by one thread. Call `finish` before the task ends; no close is needed.

    give_up_s: longest wait without an acknowledgement.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        *,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
        give_up_s: float = GIVE_UP_S,
        clock: Clock | None = None,
        counts: AppendCounts | None = None,
    ) -> None:
        self._topic = topic
        self._give_up_s = give_up_s
        self._clock = clock or SystemClock()
        self._answered = threading.Event()
        budget = ByteBudget(inflight_bytes_max, admits_one=True)
        self._outbox = Outbox(log, topic, budget, self._answered, self._clock, counts or _Counts())
        self.sent_records = 0
        self.sent_bytes = 0

    @property
    def appends(self) -> int:
        """Records sent, repeated ones included."""
        return self._outbox.appends

    @property
    def failures(self) -> int:
        """Appends that failed and were sent again, or ended the task."""
        return self._outbox.failures

    def send(self, partition: int, key: bytes, value: bytes | None, headers: Headers = ()) -> None:
        """Send a record; wait while too many bytes are in flight. Raises errors that a repeat cannot mend, and after
        give_up_s without an acknowledgement the last failure, or Unavailable (chunks_not_acknowledged)."""
        self._wait(lambda: self._outbox.offer(partition, key, value, headers))
        self.sent_records += 1
        self.sent_bytes += len(key) + len(value or b"")

    def finish(self) -> None:
        """Wait until the log has every record. Raises as send."""
        self._wait(lambda: self._outbox.empty)

    def abandon(self) -> None:
        """Stop: failed records are not sent again."""
        self._outbox.abandon()

    def _wait(self, done: Callable[[], bool]) -> None:
        outbox = self._outbox
        outbox.pump()
        acknowledged, give_up_at = outbox.acknowledged, self._clock.monotonic() + self._give_up_s
        while not done():
            self._answered.wait(WAIT_S)
            self._answered.clear()
            outbox.pump()
            if outbox.acknowledged != acknowledged:
                acknowledged, give_up_at = outbox.acknowledged, self._clock.monotonic() + self._give_up_s
            elif self._clock.monotonic() >= give_up_at:
                raise outbox.last_failure or Unavailable(
                    f"topic {self._topic} acknowledges nothing for {self._give_up_s:g} s",
                    reason="chunks_not_acknowledged",
                )


@dataclass(frozen=True, slots=True)
class Announce:
    """A function that Spark sends to tasks."""

    places: Places

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for `mapInArrow`. It announces each row of partition, pack_id, series_id, epoch, canonical.

        Yields one row, `records`, when the log has all of them.
        """
        first = next(iter(batches := iter(batches)), None)
        if first is None:
            return
        with quoted_errors(), self.places.open_log() as log:
            appender = TaskAppender(log, SERIES)
            send(appender, first)
            for batch in batches:
                send(appender, batch)
            appender.finish()
        yield pa.RecordBatch.from_pydict({"records": pa.array([appender.sent_records], pa.int64())})


def send(appender: TaskAppender, batch: pa.RecordBatch) -> None:
    """Send one announcement for each row."""
    names = ("partition", "pack_id", "series_id", "epoch", "canonical")
    for partition, pack_id, series_id, epoch, canonical in zip(
        *(batch.column(name).to_pylist() for name in names), strict=True
    ):
        key, value = encode_announcement(unsigned(series_id), epoch, unsigned(pack_id), canonical)
        appender.send(partition, key, value)
