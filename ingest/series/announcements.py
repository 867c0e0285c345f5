"""Announcements: put each series on the topic `series` before its first sample is on the log, and keep it known.

A (series, index epoch) is known while its last acknowledged announcement is younger than a window, counted from the
time before it was sent. Stores keep labels for two windows. An unknown pair is announced and acknowledged before the
write continues. A known pair is announced again without waiting, by the first write after a time in the second half of
the window. The series' hash chooses that time, so that renewals do not come in bursts. After a restart a gateway knows
no series and announces all of them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import structlog
from numpy.typing import NDArray

from ingest.acks import Acks, Answer
from ingest.age_clock import AgeClock
from ingest.batch import Batch
from ingest.inflight import Reservation
from ingest.log_errors import as_seen_by_sender, deadline_error
from ingest.series.announcement_kernels import due_kernel
from ingest.series.cache import SeriesCache
from ingest.series.resolved_rows import ResolvedRows
from tsdb.codec.records.series_record import encode_announcement
from tsdb.log.interface import SERIES, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch, TsdbError
from tsdb.model.time_set import TimeSet
from tsdb.model.window import EPOCH_MS
from tsdb.ops.lifecycle import Deadline
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

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Due:
    """Announcements of one kind that one request needs: row and index epoch of each, int64.

    found_ms: time of the check, by the age clock.
    """

    kind: str
    found_ms: int
    rows: NDArray[np.int64]
    epochs: NDArray[np.int64]


class Announcements:
    """Thread-safe; acknowledgements may come on any thread."""

    def __init__(self, log: Log, cache: SeriesCache, time_set: TimeSet, clock: Clock) -> None:
        # With this bound two entries for each series are enough, and any two accepted samples fit into one record.
        if time_set.accept_past_ms + time_set.gateway_ahead_ms >= EPOCH_MS:
            raise ConfigMismatch(
                f"time set {time_set.name}: accept_past_ms {time_set.accept_past_ms} + gateway_ahead_ms "
                f"{time_set.gateway_ahead_ms} must stay below an index epoch, {EPOCH_MS} ms",
                reason="time_set",
            )
        self._log = log
        self._cache = cache
        self._window_ms = time_set.window_ms
        self._age = AgeClock(clock)

    def due(self, batch: Batch, rows: ResolvedRows, good: NDArray[np.bool_]) -> list[Due]:
        """The announcements that the good rows need. Sends nothing."""
        return find_due(batch, rows, good, self._age.now_ms())

    def ensure(
        self, batch: Batch, rows: ResolvedRows, due: Sequence[Due], deadline: Deadline, reservation: Reservation
    ) -> None:
        """Return once every new pair is known. Renewals are sent without waiting for their acknowledgement.

        Raises Unavailable or Overloaded as the log raises them, or Unavailable (deadline).
        """
        for one in due:
            if one.kind == NEW:
                self._announce(batch, rows, one, deadline, reservation)
            else:
                self._renew(batch, rows, one, reservation)

    def _announce(
        self, batch: Batch, rows: ResolvedRows, due: Due, deadline: Deadline, reservation: Reservation
    ) -> None:
        acks, error = self._send(batch, rows, due, reservation)
        if error is not None:
            raise as_seen_by_sender(error)
        if not acks.wait(deadline.remaining()):
            raise deadline_error(f"{len(due.rows)} new series were not announced")
        for answer in acks.answers:
            if isinstance(answer, TsdbError):
                raise as_seen_by_sender(answer)

    def _renew(self, batch: Batch, rows: ResolvedRows, due: Due, reservation: Reservation) -> None:
        self._cache.postpone_renewal(rows, due.rows, due.epochs, due.found_ms + self._window_ms // RETRY_SHARE)
        _, error = self._send(batch, rows, due, reservation)
        if error is not None:  # The series are still known, so a later write retries.
            logger.warning("announcements not renewed", series=len(due.rows), reason=error.reason, error=str(error))

    def _send(
        self, batch: Batch, rows: ResolvedRows, due: Due, reservation: Reservation
    ) -> tuple[Acks, TsdbError | None]:
        """Append until the log refuses one. Each acknowledged pair becomes known, before the return or later."""

        def on_all(answers: Sequence[Answer | None]) -> None:
            try:
                self._note(rows, due, answers)
            finally:
                reservation.release()

        reservation.hold()
        acks = Acks(on_all)
        refused: TsdbError | None = None
        for row, epoch in zip(due.rows.tolist(), due.epochs.tolist(), strict=True):
            series_id = int(rows.series_id[row])
            canonical = self._cache.canonical(batch.labels[row])
            key, value = encode_announcement(series_id, epoch, int(rows.pack_id[row]), canonical)
            answer = acks.expect()
            try:
                self._log.append(SERIES, int(rows.partition[row]), value, key=key, on_done=answer)
            except TsdbError as error:
                answer(error)
                refused = error
                break
        _announcements.labels(due.kind).inc(len(acks.answers))
        acks.seal()
        return acks, refused

    def _note(self, rows: ResolvedRows, due: Due, answers: Sequence[Answer | None]) -> None:
        acked = np.array([not isinstance(answer, TsdbError) for answer in answers], np.bool_)
        _failures.labels(due.kind).inc(len(acked) - int(acked.sum()))
        which, epochs = due.rows[: len(acked)][acked], due.epochs[: len(acked)][acked]
        half, sent_ms = self._window_ms // 2, due.found_ms
        # The high bits, since the low bits already choose the phase of the index epoch.
        share = (rows.series_id[which] >> np.uint64(32)).astype(np.int64) * half >> 32
        self._cache.set_known(rows, which, epochs, sent_ms + self._window_ms, sent_ms + half + share)


def find_due(batch: Batch, rows: ResolvedRows, good: NDArray[np.bool_], now_ms: int) -> list[Due]:
    """New announcements, then renewals. An empty kind is left out."""
    size = 2 * len(good)
    row, epoch, blocking = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.bool_)
    count = due_kernel(good, batch.starts, batch.ts_ms, rows.series_id, rows.known, now_ms, row, epoch, blocking)
    if not count:
        return []
    row, epoch, blocking = row[:count], epoch[:count], blocking[:count]
    found = [
        Due(NEW, now_ms, row[blocking], epoch[blocking]),
        Due(RENEWAL, now_ms, row[~blocking], epoch[~blocking]),
    ]
    return [due for due in found if len(due.rows)]
