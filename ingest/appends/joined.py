"""Joined appends: the way of grouped samples to the log, and of its answers to their requests. No thread waits.

A request alone is sent at once. While requests meet, what arrives within some milliseconds is joined: a record a
partition. A request is answered once, after its last record or at its deadline.

Deadlines of the requests that wait for the log: each is answered when its time has passed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from ingest.appends.partition_queue import (
    WAIT_S,
    AppendWaits,
    OpenRequests,
    Part,
    PartitionQueue,
    RecordBytes,
    make_part,
)
from ingest.appends.records import Grouped, encode_grouped, record_counts
from ingest.appends.request import AppendRequest
from ingest.appends.timer import Timer, call_all
from ingest.broker_clock import BrokerClock
from ingest.exemplars import ExemplarPart
from ingest.inflight import Reservation
from tsdb.chain import Chain
from tsdb.log.interface import Appended, Log
from tsdb.model.errors import TsdbError
from tsdb.ops.lifecycle import Deadline


class JoinedAppends:
    """Thread-safe: any number of requests at once."""

    def __init__(
        self,
        log: Log,
        partitions: int,
        bytes_max: int,
        ahead_ms: int,
        chain: Chain,
        timer: Timer,
        broker_clock: BrokerClock,
    ) -> None:
        self._chain = chain
        self._ahead_ms = ahead_ms
        self._record_bytes = RecordBytes(bytes_max)
        self._deadlines = Deadlines(timer)
        self._open_requests = OpenRequests(timer.now)
        waits = AppendWaits(timer, WAIT_S)
        self._queues = [
            PartitionQueue(log, partition, self._record_bytes, waits, self._open_requests, broker_clock)
            for partition in range(partitions)
        ]

    def begin(
        self,
        reservation: Reservation,
        name: Callable[[int], str],
        new_series: int,
        on_answer: Callable[[list[Appended] | TsdbError], None],
    ) -> AppendRequest:
        """A request, followed by `append` or by its `refuse`. The request keeps the reservation until its end.

        on_answer: called once, from any thread: with the records that hold the samples, by partition and offset, once
        all are acknowledged and no sample is so far ahead that readers ignore it. Else with Unavailable or Overloaded
        as the log has them, Unavailable (deadline, clock), or InvalidRequest (record_too_large) for a single sample
        that does not fit. name: the series of an id, for that message. new_series: announced before `append`.

        """

        def answer(result: list[Appended] | TsdbError) -> None:
            self._open_requests.closed()
            self._deadlines.remove(request)
            on_answer(result)

        self._open_requests.opened()
        request = AppendRequest(self._chain.first(), self._ahead_ms, reservation, name, new_series, answer)
        return request

    @property
    def record_bytes_max(self) -> int:
        """The most bytes of a record now."""
        return self._record_bytes.max

    def append(self, request: AppendRequest, grouped: Grouped | None, exemplars: Sequence[ExemplarPart] = ()) -> None:
        """Append the samples in their order, then the exemplars, and return at once. grouped: None without samples."""
        records = [] if grouped is None else encode_grouped(grouped, self._record_bytes.max)
        request.expect(len(records) + len(exemplars))
        before = None
        for record in records:
            partition = record.part.partition
            packs, samples = record_counts(record.data)
            part = Part(request, record.data, packs, samples, record.newest_ms, follows=partition == before)
            self._queues[partition].put(part)
            before = partition
        for one in exemplars:
            # Alone: a record has samples or exemplars, so the part joins no other.
            self._queues[one.partition].put(make_part(request, one.data, alone=True))
        request.seal()

    def expire_after(self, request: AppendRequest, deadline: Deadline) -> None:
        """Answer the request at its deadline, unless it is answered before."""
        if request.answered:
            return
        self._deadlines.add(request, deadline.remaining())
        if request.answered:  # The request was answered meanwhile, so `remove` came before `add`.
            self._deadlines.remove(request)


class Expirable(Protocol):
    """A request with a deadline."""

    def expire(self) -> None:
        """The deadline has passed. Has no effect on an answered request."""


class Deadlines:
    """Thread-safe. One call of the timer is outstanding at a time, for the earliest deadline."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._lock = threading.Lock()  # Guards all below.
        self._open: dict[Expirable, float] = {}
        self._wakes_at = float("inf")

    def add(self, request: Expirable, remaining_s: float) -> None:
        """Expire the request after remaining_s, unless it is removed first."""
        at = self._timer.now() + remaining_s
        with self._lock:
            self._open[request] = at
            if at >= self._wakes_at:
                return
            self._wakes_at = at
        self._timer.after(remaining_s, self._sweep)

    def remove(self, request: Expirable) -> None:
        """The request is answered."""
        with self._lock:
            self._open.pop(request, None)

    def _sweep(self) -> None:
        now = self._timer.now()
        with self._lock:
            late = [request for request, at in self._open.items() if at <= now]
            for request in late:
                del self._open[request]
            at = self._wakes_at = min(self._open.values(), default=float("inf"))
        # `add` of another thread may have moved _wakes_at since, and has called the timer itself then.
        if at < float("inf"):
            self._timer.after(at - now, self._sweep)
        call_all(self._timer, [request.expire for request in late])
