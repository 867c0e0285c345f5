"""Partition queue: the appends of one partition, joined into one record while requests meet.

The part of a request that is alone in the gateway is sent at once. While requests meet, parts wait for those of
others, at most WAIT_S and until they fill a record. The waits of all partitions end together: the log then gets a
record a partition, its answers come together, and so do the next requests. Parts are sent in the order of their
arrival.

The largest record that the gateway makes is learned from the broker's refusals.

Requests wait for one another only while requests meet.

AppendWaits calls functions after a fixed time. Waits that begin together end with one wake of the timer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ingest.appends.records import TOO_LARGE, first_series_id, halve_record, join_records, newest_ms, record_counts
from ingest.appends.request import AppendRequest
from ingest.appends.timer import Timer, call_all
from ingest.broker_clock import BrokerClock
from tsdb.codec.records.log_record import encoded_size
from tsdb.log.interface import METRICS, Appended, Log
from tsdb.model.errors import InvalidRequest, TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import adder, counter

# Lower bound of the learned size: below it one request with long packs would needlessly shrink all other records.
RECORD_BYTES_LEAST = 16 * 1024
_halved = counter("tsdb_ingest_records_halved_total", "Log records that the broker found too large.")

# Requests meet for this long after two were open at once: senders that are answered together send again within it.
MEET_S = 0.05

WAIT_S = 0.003  # A third of the time of a write at half load (docs/benchmarks.md).
_add_records = adder(counter("tsdb_ingest_records_total", "Log records that the log acknowledged."))
_add_record_bytes = adder(counter("tsdb_ingest_record_bytes_total", "Bytes of log records that the log acknowledged."))
_add_record_parts = adder(
    counter(
        "tsdb_ingest_record_parts_total",
        "Parts of requests in acknowledged log records: a record has one, or those of requests that met.",
    )
)
logger = get_logger(__name__)


class RecordBytes:
    """`max`: the most bytes of a record. It only ever falls, so a race without a lock costs at most one more
    refusal."""

    def __init__(self, bytes_max: int) -> None:
        self.max = bytes_max

    def too_large(self, size: int) -> None:
        """The broker has refused a record of `size` bytes."""
        _halved.inc()
        learned = max(size // 2, RECORD_BYTES_LEAST)
        if learned < self.max:
            logger.warning("broker accepts only smaller records", record_bytes=size, record_bytes_max=learned)
            self.max = learned


class OpenRequests:
    """Thread-safe. monotonic: seconds on a clock that never steps."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()  # Guards both below; _meet_until is read without it.
        self._open = 0
        self._meet_until = float("-inf")

    def opened(self) -> None:
        """A request has come."""
        with self._lock:
            self._open += 1
            if self._open > 1:
                self._meet_until = self._monotonic() + MEET_S

    def closed(self) -> None:
        """A request is answered."""
        with self._lock:
            self._open -= 1

    def meet(self) -> bool:
        """Whether two were open at once within MEET_S."""
        return self._monotonic() < self._meet_until


class AppendWaits:
    """Thread-safe. A gateway begins thousands of waits a second, so a wake of a thread for each would be dear."""

    def __init__(self, timer: Timer, seconds: float) -> None:
        self._timer = timer
        self._seconds = seconds
        self._lock = threading.Lock()  # Guards _begun.
        self._begun: list[Callable[[], None]] = []  # While it has an entry, a call of the timer is outstanding.

    def begin(self, end: Callable[[], None]) -> None:
        """Call `end` once, at most the fixed time later, in the order of `begin`. `end` must not block."""
        with self._lock:
            self._begun.append(end)
            if len(self._begun) > 1:
                return
        self._timer.after(self._seconds, self._end_all)

    def _end_all(self) -> None:
        with self._lock:
            begun, self._begun = self._begun, []
        call_all(self._timer, begun)


@dataclass(slots=True, eq=False)
class Part:
    """Samples of one request for one partition, as a log record: `packs` packs, `samples` samples. Of a record of
    exemplars `samples` is their number.

    follows: an earlier part of the request for the same partition must be answered first. alone: the broker found the
    part, or a record with it, too large, so that it is not joined again.
    """

    request: AppendRequest
    data: bytes
    packs: int
    samples: int
    newest_ms: int
    follows: bool = False
    alone: bool = False

    @property
    def detail_bytes(self) -> int:
        """Bytes of start timestamps and histograms; 0 for a record without."""
        return max(0, len(self.data) - encoded_size(self.packs, self.samples, shared_ts=False))


class PartitionQueue:
    """Thread-safe. waits: ends waits after WAIT_S. Answers of the log may come on any thread, also during the
    append.
    """

    def __init__(
        self,
        log: Log,
        partition: int,
        record_bytes: RecordBytes,
        waits: AppendWaits,
        open_requests: OpenRequests,
        broker_clock: BrokerClock,
    ) -> None:
        self._log = log
        self._partition = partition
        self._record_bytes = record_bytes
        self._waits = waits
        self._open_requests = open_requests
        self._broker_clock = broker_clock
        self._lock = threading.Lock()  # Guards all below; the log is called without it.
        self._waiting: deque[Part] = deque()
        self._waiting_bytes = 0
        self._in_flight = 0  # Number of records in flight.
        self._sends = False  # Whether a thread takes parts and appends them. Other threads leave their parts to it.
        self._overdue = False  # The wait of the waiting parts has ended.
        self._meets = False  # The waiting parts wait although nothing is in flight.

    def put(self, part: Part) -> None:
        """Append the part, now or joined with others; its request gets the answer."""
        with self._lock:
            self._waiting.append(part)
            self._waiting_bytes += len(part.data)
            if len(self._waiting) == 1:
                self._await_locked()
            if not self._begin_locked():
                return
        self._send()

    def _await_locked(self) -> None:
        """New parts begin to wait."""
        self._overdue = False
        self._meets = self._open_requests.meet()
        if self._in_flight or self._meets:
            self._waits.begin(self._end_wait)

    def _end_wait(self) -> None:
        with self._lock:
            self._overdue = True
            if not self._begin_locked():
                return
        self._send()

    def _begin_locked(self) -> bool:
        """Whether this thread is to send now."""
        if self._sends or not self._ready_locked():
            return False
        self._sends = True
        return True

    def _ready_locked(self) -> bool:
        if not self._waiting:
            return False
        due = self._overdue or self._waiting_bytes >= self._record_bytes.max
        if self._in_flight:
            return due and not self._waiting[0].follows
        return due or not self._meets

    def _send(self) -> None:
        """Append records until the parts must wait again. Only the thread that set `_sends` calls it."""
        while True:
            with self._lock:
                parts, dropped = self._take_locked()
                if not parts and not dropped:
                    self._sends = False
                    return
            for part in dropped:
                part.request.part_dropped()
            if parts:
                self._append(parts)

    def _take_locked(self) -> tuple[list[Part], list[Part]]:
        """(parts of the next record, parts whose requests are answered); none when they have to wait."""
        parts: list[Part] = []
        dropped: list[Part] = []
        packs = samples = details = 0
        while self._waiting and (parts or self._ready_locked()):
            part = self._waiting[0]
            if part.request.answered:
                dropped.append(self._pop_locked())
                continue
            packs, samples = packs + part.packs, samples + part.samples
            details += part.detail_bytes
            size = encoded_size(packs, samples, shared_ts=False) + details
            if parts and not self._joins_locked(part, parts[0], size):
                break
            parts.append(self._pop_locked())
        if parts:
            self._in_flight += 1
            if self._waiting:
                self._await_locked()
        return parts, dropped

    def _joins_locked(self, part: Part, first: Part, size: int) -> bool:
        """Whether a part goes into the record that begins with `first` and has `size` bytes then."""
        if part.alone or first.alone or size > self._record_bytes.max:
            return False
        return not (part.follows and self._in_flight)

    def _pop_locked(self) -> Part:
        part = self._waiting.popleft()
        self._waiting_bytes -= len(part.data)
        return part

    def _append(self, parts: list[Part]) -> None:
        try:
            data = parts[0].data if len(parts) == 1 else join_records([part.data for part in parts])
        except InvalidRequest:
            self._return_apart(parts)
            return
        on_done = partial(self._answered, parts, len(data), self._broker_clock.now_ms())
        try:
            self._log.append(METRICS, self._partition, data, headers=parts[0].request.headers, on_done=on_done)
        except TsdbError as error:
            on_done(error)
        except Exception as error:
            # This error is a bug. If it ended the thread here, the parts would never be answered, and the partition
            # would send no more.
            logger.error("append failed", partition=self._partition, error=str(error), exc_info=error)
            on_done(TsdbError("internal error of the gateway; its log has the details"))

    def _return_apart(self, parts: Sequence[Part]) -> None:
        """Details of samples that alternate can take more bytes together than apart: send these parts alone."""
        with self._lock:
            self._in_flight -= 1
            for part in parts:
                part.alone = True
            self._put_back_locked(parts)

    def _put_back_locked(self, parts: Sequence[Part]) -> None:
        self._waiting.extendleft(reversed(parts))
        self._waiting_bytes += sum(len(part.data) for part in parts)
        self._await_locked()

    def _answered(self, parts: Sequence[Part], size: int, sent_ms: int, answer: Appended | TsdbError) -> None:
        if isinstance(answer, Appended):
            self._broker_clock.measured(self._partition, sent_ms, answer.broker_ms)
        if isinstance(answer, InvalidRequest) and answer.reason == TOO_LARGE:
            again, parts, answer = self._smaller(parts, size, answer)
        else:
            again = []
        with self._lock:
            self._in_flight -= 1
            if again:
                self._put_back_locked(again)
            sends = self._begin_locked()
        try:
            if sends:
                self._send()
        finally:
            _answer(parts, size, answer)

    def _smaller(
        self, parts: Sequence[Part], size: int, error: InvalidRequest
    ) -> tuple[list[Part], Sequence[Part], InvalidRequest]:
        """(parts to send again in smaller records, in their order; parts that no record can hold, with their error)."""
        first = parts[0]
        if len(parts) == 1 and first.samples == 1:
            return [], parts, _sample_too_large(first)
        self._record_bytes.too_large(size)
        if len(parts) > 1:
            for part in parts:
                part.alone = True
            return list(parts), [], error
        halves = [
            make_part(first.request, data, follows=first.follows, alone=True) for data in halve_record(first.data)
        ]
        halves[1].follows = True
        first.request.expect(1)
        return halves, [], error


def make_part(request: AppendRequest, data: bytes, *, follows: bool = False, alone: bool = False) -> Part:
    """A part of a record's bytes."""
    packs, samples = record_counts(data)
    return Part(request, data, packs, samples, newest_ms(data), follows, alone)


def _answer(parts: Sequence[Part], size: int, answer: Appended | TsdbError) -> None:
    if isinstance(answer, Appended):
        _add_records(1)
        _add_record_bytes(size)
        _add_record_parts(len(parts))
    for part in parts:
        try:
            if isinstance(answer, TsdbError):
                part.request.part_failed(answer)
            else:
                part.request.part_done(answer, part.newest_ms)
        except Exception as error:
            # A bug in the answer of one request must not prevent the answers of others.
            logger.error("answer of a write failed", error=str(error), exc_info=error)


def _sample_too_large(part: Part) -> InvalidRequest:
    size = len(part.data)
    return InvalidRequest(
        f"one sample is a record of {size} bytes, which the broker finds too large; "
        f"series {part.request.name(first_series_id(part.data))}; other samples of the request may be stored",
        reason=TOO_LARGE,
        got=size,
    )
