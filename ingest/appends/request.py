"""Append request: the answer to one request, put together from the answers to its records.

It is answered once: by the last answer of the log, or by its deadline if that passes first. Its records may land in
spite of the deadline; its bytes count as in flight until the log has answered each of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ingest.appends.records import TOO_LARGE
from ingest.inflight import Reservation
from ingest.refusals import as_seen_by_sender, clock_error, deadline_error
from tsdb.log.interface import Appended, Headers
from tsdb.model.errors import InvalidRequest, TsdbError

OnAnswer = Callable[[list[Appended] | TsdbError], None]


class AppendRequest:
    """Thread-safe. `on_answer` gets the records by partition and offset, or the first error.

    headers: the headers of its records, made when the request begins. name: the series of an id, for messages.
    new_series: announced first.
    """

    def __init__(
        self,
        headers: Headers,
        ahead_ms: int,
        reservation: Reservation,
        name: Callable[[int], str],
        new_series: int,
        on_answer: OnAnswer,
    ) -> None:
        reservation.hold()
        self.headers = headers
        self.name = name
        self._new_series = new_series
        self._ahead_ms = ahead_ms
        self._reservation = reservation
        self._lock = threading.Lock()  # Guards all below.
        # Only the call that takes the callback answers. The callback refers to this request. If the request kept it,
        # the two would keep the rows until a garbage collection.
        self._on_answer: OnAnswer | None = on_answer
        self._pending = 1  # One count for the sender, until `seal`.
        self._sealed = False
        self._error: TsdbError | None = None
        self._appended: set[tuple[int, int, int]] = set()

    @property
    def answered(self) -> bool:
        """Whether the caller has an answer: what the log does not have yet need not be sent any more."""
        return self._on_answer is None

    def expect(self, count: int) -> None:
        """`count` more parts, each of which is answered once."""
        with self._lock:
            self._pending += count

    def seal(self) -> None:
        """State that no other part follows."""
        with self._lock:
            self._sealed = True
        self._finish()

    def part_done(self, appended: Appended, newest_ms: int) -> None:
        """A part is on the log. newest_ms: its latest timestamp, which readers compare with the broker time."""
        error = None
        if newest_ms > appended.broker_ms + self._ahead_ms:
            error = clock_error(appended, newest_ms, self._ahead_ms)
        with self._lock:
            self._error = self._error or error
            self._appended.add((appended.partition, appended.offset, appended.broker_ms))
        self._finish()

    def part_failed(self, error: TsdbError) -> None:
        """The log refused a part, or did not acknowledge it."""
        with self._lock:
            self._error = self._error or _for_sender(error)
        self._finish()

    def refuse(self, error: TsdbError) -> None:
        """No part follows, because of an error."""
        self.part_failed(error)

    def part_dropped(self) -> None:
        """A part was not sent, since the request is answered."""
        self._finish()

    def expire(self) -> None:
        """The deadline has passed."""
        with self._lock:
            on_answer = self._take_locked()
            what = f"{self._pending} records are not acknowledged"
            if not self._sealed:
                what = f"{self._new_series} new series were not announced"
        if on_answer is not None:
            on_answer(deadline_error(what))

    def _finish(self) -> None:
        """A part is over; the last one answers the request, unless its deadline did."""
        with self._lock:
            self._pending -= 1
            if self._pending:
                return
            on_answer = self._take_locked()
            result = self._error or [Appended(*place) for place in sorted(self._appended)]
        try:
            if on_answer is not None:
                on_answer(result)
        finally:
            self._reservation.release()

    def _take_locked(self) -> OnAnswer | None:
        """Take the callback; no other function may answer. None when the request is already answered."""
        on_answer, self._on_answer = self._on_answer, None
        return on_answer


def _for_sender(error: TsdbError) -> TsdbError:
    if isinstance(error, InvalidRequest) and error.reason == TOO_LARGE:
        return error
    return as_seen_by_sender(error)
