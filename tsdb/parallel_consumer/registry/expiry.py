"""ExpiryScanner: sends expired copies to the dead letters, marked `expired`, and ends them.

It stores nothing: at each start it reads the wait topic from its first record and keeps the copies without a null
record. Nothing else depends on it while it is down; copies that expired meanwhile are sent after its restart. A copy
expires only while its partition is read to the end, so a late null record cancels a dead letter that was not sent yet.
A dead letter and the null record of its copy form one transaction of a member that still has the partition: each copy
expires once, even if a scanner ends or is replaced in between. One thread: call `step`, or `start`.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from prometheus_client import REGISTRY

from tsdb.parallel_consumer.clock import Clock, SystemClock
from tsdb.parallel_consumer.errors import CommitFailed, SendFailed
from tsdb.parallel_consumer.limited_log import LimitedLog
from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Position, Record, TopicPartition
from tsdb.parallel_consumer.registry.metrics import RegistryMetrics
from tsdb.parallel_consumer.registry.wait_record import WaitRecord, WaitRecordRefused, null_record, read_wait_record
from tsdb.parallel_consumer.scheduling.dead_letters import FailureDetails, dead_letter, without_value
from tsdb.parallel_consumer.source import AtomicSource

EXPIRED = "expired"
STEP_S = 0.5
AGAIN_S = 1.0
RECORDS_MAX = 1_000
TOGETHER_MAX = 100  # Dead letters in one transaction.

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Copy:
    """A copy without a null record. record: the record in the wait topic. ended: it has a null record, or its partition
    was removed.
    """

    record: Record
    waiting: WaitRecord
    dead_letter: OutRecord
    ended: bool = False


class ExpiryScanner:
    """Implements SourceListener. source: reads the wait topic in a consumer group that only this scanner has; it
    commits only its start positions.

    Raises errors that end its source, from `step` or `join`, including Fenced.

    """

    def __init__(
        self,
        source: AtomicSource,
        dead_letter_topic: str,
        *,
        metrics: RegistryMetrics | None = None,
        clock: Clock | None = None,
        name: str = "expiry-scanner",
    ) -> None:
        self._source = source
        self._dead_letter_topic = dead_letter_topic
        self._metrics = metrics or RegistryMetrics(REGISTRY)
        self._clock = clock or SystemClock()
        self._log = LimitedLog(self._clock)
        self._copies: dict[TopicPartition, dict[bytes, _Copy]] = {}
        self._starts: dict[TopicPartition, Position] = {}
        self._at_end: set[TopicPartition] = set()
        self._due: list[tuple[int, int, _Copy]] = []  # Expiry time, tie-breaker and copy.
        self._numbers = itertools.count()
        self._undecided: list[_Copy] = []  # Copies of the last transaction, while its result is unknown.
        self._more = False  # More copies are due than one transaction holds.
        self._started = False
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def waiting(self) -> int:
        """Copies without a null record."""
        return sum(map(len, self._copies.values()))

    def step(self, wait_s: float) -> None:
        """Read new records, send due copies to the dead letters; waits up to wait_s for records."""
        if not self._started:
            self._started = True
            self._source.start(self)
        polled = self._source.poll(0.0 if self._more else wait_s, RECORDS_MAX)
        for record in polled.records:
            self._apply(record)
        self._at_end |= polled.ends.keys() & self._copies.keys()
        if self._undecided:
            self._write(self._undecided)
        else:
            self._expire()
        self._metrics.waiting.set(self.waiting)
        self._log.flush()

    def start(self) -> None:
        """Run steps on a thread until `close`."""
        self._thread.start()

    def close(self) -> None:
        """End soon, and return at once. The next scanner finds copies that were not sent yet."""
        self._closing.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; False on timeout. Raises the error that ended it, unless `close` did."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    # SourceListener.

    def on_assigned(self, starts: Mapping[TopicPartition, Position]) -> None:
        self._copies.update({topic_partition: {} for topic_partition in starts})
        self._starts.update(starts)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        for topic_partition in partitions:
            self._starts.pop(topic_partition, None)
            for copy in self._copies.pop(topic_partition, {}).values():
                copy.ended = True
        self._at_end -= set(partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.on_revoked(partitions)

    def _apply(self, record: Record) -> None:
        copies = self._copies.get(record.topic_partition)
        if copies is None:
            return
        self._at_end.discard(record.topic_partition)
        copy_before = copies.pop(record.key or b"", None)
        if copy_before is not None:
            copy_before.ended = True
        if record.value is None:
            return
        try:
            waiting = read_wait_record(record)
        except WaitRecordRefused as error:
            self._metrics.refused.inc()
            self._log.log(logging.WARNING, "refused", record.topic_partition, "%s; passed over", error.message)
            return
        details = FailureDetails(EXPIRED, None, 0, 0, waiting.expires_at_ms)
        copy = _Copy(record, waiting, dead_letter(self._dead_letter_topic, waiting.record, details))
        copies[waiting.key] = copy
        self._push(copy, waiting.expires_at_ms)

    def _push(self, copy: _Copy, due_ms: int) -> None:
        heapq.heappush(self._due, (due_ms, next(self._numbers), copy))

    def _expire(self) -> None:
        now_ms = self._clock.now_ms()
        unread: list[_Copy] = []
        due: list[_Copy] = []
        while self._due and self._due[0][0] <= now_ms and len(due) < TOGETHER_MAX:
            _, _, copy = heapq.heappop(self._due)
            if copy.ended:
                continue
            # Otherwise the null record of the copy may be among the records that are not read yet.
            (due if copy.record.topic_partition in self._at_end else unread).append(copy)
        for copy in unread:
            self._push(copy, copy.waiting.expires_at_ms)
        self._more = len(due) == TOGETHER_MAX
        if due:
            self._write(due)

    def _write(self, copies: list[_Copy]) -> None:
        """Write their dead letters and null records together."""
        records = [record for copy in copies for record in (copy.dead_letter, _end_of(copy))]
        topic_partitions = {copy.record.topic_partition for copy in copies}
        self._undecided = []
        try:
            self._source.write(
                records,
                {
                    topic_partition: self._starts[topic_partition]
                    for topic_partition in topic_partitions & self._starts.keys()
                },
            )
        except CommitFailed as error:
            self._metrics.send_failures.inc()
            self._log.log(logging.WARNING, "expire", None, "not expired yet: %s", error.message)
            if error.reason == "undecided":
                self._undecided = copies
            else:
                self._later(copies)
        except SendFailed:
            self._metrics.send_failures.inc()
            self._write_in_halves(copies)
        else:
            for copy in copies:
                self._ended(copy)

    def _write_in_halves(self, copies: list[_Copy]) -> None:
        """One of them is too large: halving finds it, and it is sent without its value."""
        if len(copies) > 1:
            middle = len(copies) // 2
            self._later(copies[middle:])
            self._write(copies[:middle])
        else:
            if copies[0].dead_letter.value is not None:
                copies[0].dead_letter = without_value(copies[0].dead_letter)
            self._later(copies)

    def _ended(self, copy: _Copy) -> None:
        self._metrics.expired.inc()
        self._metrics.posted.inc()
        copies = self._copies.get(copy.record.topic_partition, {})
        if copies.get(copy.waiting.key) is copy:
            del copies[copy.waiting.key]

    def _later(self, copies: Collection[_Copy]) -> None:
        for copy in copies:
            self._push(copy, self._clock.now_ms() + round(AGAIN_S * 1000))

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self.step(STEP_S)
        except BaseException as error:
            self._error = error
            log.error("ended by %s: %s", type(error).__name__, error)
        finally:
            self._source.close()


def _end_of(copy: _Copy) -> OutRecord:
    return null_record(copy.record.topic, copy.record.partition, copy.waiting.key)
