"""Announcements: put each series on the topic `series` before its first sample is on the log, and keep it known.

A (series, index epoch) is known while its last acknowledged announcement is younger than a window, counted from the
time before it was sent. Stores keep labels for two windows. An unknown pair is announced and acknowledged before the
write continues. A known pair is announced again without waiting, by the first write after a time in the second half of
the window. The series' hash chooses that time, so that renewals do not come in bursts. After a restart a gateway knows
no series and announces all of them again.

Acks collects the log's answers to one batch of appends, and calls one function for all of them.

Answers may come from any thread, also during the append. Each append answers once.

The age clock tells the time since an event, which is never less than the real time.

A monotonic clock stops while a virtual machine is suspended, and a wall clock may step back. Between two readings this
clock advances by the larger of both differences, because an age decides whether stores still keep a series.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ingest.inflight import Reservation
from ingest.rows import ResolvedSeries, Rows
from ingest.series.announcement_kernels import due_kernel
from ingest.series.canonical import CanonicalLabels
from ingest.series.resolver import SeriesResolver
from ingest.series.table import SeriesTable
from tsdb.codec.records.series_record import encode_announcements
from tsdb.log.interface import SERIES, Appended, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch, TsdbError
from tsdb.model.time_set import TimeSet
from tsdb.model.window import EPOCH_MS
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

# After a failed renewal, a write retries it 1/16 of a window later: several times before the announcement lapses.
RETRY_SHARE = 16
NEW, RENEWAL = "new", "renewal"
_announcements = counter(
    "tsdb_ingest_announcements_total",
    "Announcements sent: new ones, which a write waits for, and renewals, which no write waits for.",
    "kind",
    (NEW, RENEWAL),
)
_failures = counter(
    "tsdb_ingest_announcement_failures_total",
    "Announcements that the log did not acknowledge.",
    "kind",
    (NEW, RENEWAL),
)
logger = get_logger(__name__)

Answer = Appended | TsdbError


@dataclass(frozen=True, slots=True)
class DueAnnouncements:
    """Announcements of one kind that one request needs: row and index epoch of each, int64.

    found_ms: time of the check, by the age clock. Announcement i has number which[i] of `labels`.
    """

    kind: str
    found_ms: int
    rows: NDArray[np.int64]
    epochs: NDArray[np.int64]
    labels: CanonicalLabels
    which: NDArray[np.int64]

    def part(self, kept: NDArray[np.bool_]) -> DueAnnouncements:
        """A part of the announcements."""
        return replace(self, rows=self.rows[kept], epochs=self.epochs[kept], which=self.which[kept])


class Announcements:
    """Thread-safe; acknowledgements may come on any thread."""

    def __init__(
        self, log: Log, table: SeriesTable, resolver: SeriesResolver, time_set: TimeSet, age: AgeClock
    ) -> None:
        # With this bound two entries for each series are enough, and any two accepted samples fit into one record.
        if time_set.accept_past_ms + time_set.gateway_ahead_ms >= EPOCH_MS:
            raise ConfigMismatch(
                f"time set {time_set.name}: accept_past_ms {time_set.accept_past_ms} + gateway_ahead_ms "
                f"{time_set.gateway_ahead_ms} must stay below an index epoch, {EPOCH_MS} ms",
                reason="time_set",
            )
        self._log = log
        self._table = table
        self._resolver = resolver
        self._window_ms = time_set.window_ms
        self._age = age

    def due(self, rows: Rows, series: ResolvedSeries, good: NDArray[np.bool_], now_ms: int) -> list[DueAnnouncements]:
        """The announcements that the good rows need at now_ms, by the age clock. Sends nothing."""
        found = find_due(rows, series, good, now_ms)
        if not len(found.rows):
            return []
        labels = self._resolver.normalize(rows, found.rows)
        which = np.arange(len(found.rows))
        both = [
            DueAnnouncements(kind, now_ms, found.rows, found.epochs, labels, which).part(found.is_new == (kind == NEW))
            for kind in (NEW, RENEWAL)
        ]
        return [due for due in both if len(due.rows)]

    def announce(
        self,
        series: ResolvedSeries,
        due: Sequence[DueAnnouncements],
        reservation: Reservation,
        on_known: Callable[[TsdbError | None], None],
    ) -> None:
        """Announce all that is due. on_known is called once, from any thread: with None when every new pair is known,
        which no renewal delays, else with the first error of the log."""
        for one in due:
            if one.kind == RENEWAL:
                self._renew(series, one, reservation)
        new = [one for one in due if one.kind == NEW]
        assert len(new) <= 1, "the new announcements of a request are found together"
        if new:
            self._send(series, new[0], reservation, on_known)
        else:
            on_known(None)

    def _renew(self, series: ResolvedSeries, due: DueAnnouncements, reservation: Reservation) -> None:
        self._table.postpone_renewal(series.part(due.rows), due.found_ms + self._window_ms // RETRY_SHARE)

        def warn(error: TsdbError | None) -> None:
            if error is not None:  # The series are still known, so a later write retries.
                logger.warning("announcements not renewed", series=len(due.rows), reason=error.reason, error=str(error))

        self._send(series, due, reservation, warn)

    def _send(
        self,
        series: ResolvedSeries,
        due: DueAnnouncements,
        reservation: Reservation,
        on_end: Callable[[TsdbError | None], None],
    ) -> None:
        """Append until the log refuses one. Each acknowledged pair becomes known before on_end."""

        def on_all(answers: Sequence[Answer | None]) -> None:
            try:
                self._note(series, due, answers)
                errors = (answer for answer in answers if isinstance(answer, TsdbError))
                on_end(next(errors, None))
            finally:
                reservation.release()

        reservation.hold()
        acks = Acks(on_all)
        part = series.part(due.rows)
        records = encode_announcements(
            part.series_id, due.epochs, part.pack_id, due.labels.labels, due.labels.label_starts, due.which
        )
        for partition, (key, value) in zip(part.partition.tolist(), records, strict=True):
            answer = acks.expect()
            try:
                self._log.append(SERIES, partition, value, key=key, on_done=answer)
            except TsdbError as error:
                answer(error)
                break
        _announcements.labels(due.kind).inc(len(acks.answers))
        acks.seal()

    def _note(self, series: ResolvedSeries, due: DueAnnouncements, answers: Sequence[Answer | None]) -> None:
        acked = np.array([not isinstance(answer, TsdbError) for answer in answers], np.bool_)
        _failures.labels(due.kind).inc(len(acked) - int(acked.sum()))
        which, epochs = due.rows[: len(acked)][acked], due.epochs[: len(acked)][acked]
        self._table.set_known(series.part(which), epochs, due.found_ms + self._window_ms, self._age.now_ms())


@dataclass(frozen=True, slots=True)
class FoundDue:
    """rows, epochs: int64 (n,), the pairs to announce; is_new: bool (n,), the others are renewals."""

    rows: NDArray[np.int64]
    epochs: NDArray[np.int64]
    is_new: NDArray[np.bool_]


def find_due(rows: Rows, series: ResolvedSeries, good: NDArray[np.bool_], now_ms: int) -> FoundDue:
    """The pairs of good rows to announce at now_ms, by the age clock."""
    size = 2 * len(good)
    row, epoch, is_new = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.bool_)
    count = due_kernel(good, rows.starts, rows.ts_ms, series.series_id, series.known, now_ms, row, epoch, is_new)
    return FoundDue(row[:count], epoch[:count], is_new[:count])


class Acks:
    """`answers[i]` belongs to the i-th `expect()`. `on_all(answers)` runs once, after `seal()` and the last answer."""

    def __init__(self, on_all: Callable[[list[Answer | None]], None]) -> None:
        self.answers: list[Answer | None] = []
        self._on_all = on_all
        self._lock = threading.Lock()  # Guards _pending and the first write of each answer.
        self._pending = 1  # One for the sender, until seal(): inline answers must not complete a half-sent batch.

    def expect(self) -> Callable[[Answer], None]:
        """A callback for one more append. Only for the sender's thread."""
        index = len(self.answers)
        self.answers.append(None)
        with self._lock:
            self._pending += 1
        return partial(self._answer, index)

    def seal(self) -> None:
        """State that no append follows."""
        self._count_down()

    def _answer(self, index: int, answer: Answer) -> None:
        assert self.answers[index] is None, f"append {index} was answered twice"
        self.answers[index] = answer
        self._count_down()

    def _count_down(self) -> None:
        with self._lock:
            self._pending -= 1
            if self._pending:
                return
        self._on_all(self.answers)


class AgeClock:
    """A clock that counts milliseconds from 1 and never steps back; comparable within one process. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # Guards all below.
        self._wall_ms = clock.now_ms()
        self._monotonic_ms = clock.monotonic() * 1000
        self._age_ms = 1.0

    def now_ms(self) -> int:
        """The current time, to compare with earlier results of this method."""
        with self._lock:
            wall_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic() * 1000
            self._age_ms += max(0.0, wall_ms - self._wall_ms, monotonic_ms - self._monotonic_ms)
            self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
            return int(self._age_ms)
