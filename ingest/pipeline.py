"""Write pipeline: the path of all protocols from arrays to the log. It uses no types of a protocol.

Steps: shape, bytes in flight, series, validation, admission, announcements, grouping, append, acknowledgement. When a
call returns, every accepted sample is on the log. When it raises InvalidRequest, none is. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.appender import RecordAppender
from ingest.batch import Batch, make_batch
from ingest.grouping import group
from ingest.inflight import Inflight, Reservation
from ingest.limits import IngestLimits
from ingest.log_errors import deadline_error
from ingest.refusals import Offender, Refusals, count_refused_request, count_refused_samples, shown_series
from ingest.series.admission import SeriesAdmission
from ingest.series.announcements import Announcements, Due
from ingest.series.cache import SeriesCache
from ingest.series.resolved_rows import ResolvedRows
from ingest.validate import validate
from tsdb.log.chains import chain_of
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch, TsdbError
from tsdb.model.labels import series_id as hash_labels
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import TimeSet
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.metrics import counter, histogram

_samples = counter("tsdb_ingest_samples_total", "Accepted samples: the log has them, and readers will show them.")
_requests = counter("tsdb_ingest_requests_total", "Write requests that reached the pipeline.")
_seconds = histogram("tsdb_ingest_write_duration_seconds", "From a request's arrays to its answer.")


@dataclass(frozen=True, slots=True)
class RecordToken:
    """Position in the log of one record of an accepted request."""

    topic_id: str
    partition: int
    record_offset: int


@dataclass(frozen=True, slots=True)
class WriteResult:
    """`samples`: accepted samples, in the records of `tokens`. Refused rows occur only in a partial write.

    refused: samples of refused rows, by reason.
    """

    tokens: list[RecordToken]
    samples: int
    refused: Mapping[str, int]
    refused_series: int
    offenders: list[Offender]

    @property
    def refused_samples(self) -> int:
        """Samples of all refused rows."""
        return sum(self.refused.values())


class WritePipeline:
    """Raises ConfigMismatch when partitions, time set and timeout contradict each other or the log."""

    def __init__(
        self,
        log: Log,
        rule: PlacementRule,
        partitions: int,
        time_set: TimeSet,
        limits: IngestLimits,
        clock: Clock,
        *,
        series_id: Callable[[bytes], int] = hash_labels,
    ) -> None:
        _check(log, partitions, time_set, limits)
        self._log = log
        self._time_set = time_set
        self._limits = limits
        self._clock = clock
        self._inflight = Inflight(limits.inflight_bytes_max)
        self._cache = SeriesCache(rule, partitions, limits, series_id=series_id)
        self._admission = SeriesAdmission(self._cache, rule, limits, time_set.window_ms, clock)
        self._announcements = Announcements(log, self._cache, time_set, clock)
        chain = chain_of("gateway", clock.now_ms)
        self._appender = RecordAppender(log, limits.record_bytes_max, time_set.ahead_ms, chain)

    def write(
        self,
        labels: Sequence[bytes],
        counts: NDArray[np.uint32] | None,
        ts_ms: NDArray[np.int64],
        values: NDArray[np.float64],
        partial: bool,
        deadline: Deadline,
    ) -> WriteResult:
        """Write series `labels[i]` with counts[i] samples each (None: one each), series after series.

        labels: name 0xFF value 0xFF ..., in any order of names. All or nothing, unless `partial`: then bad series are
        refused whole and listed. Raises InvalidRequest (nothing was written), Unavailable, Overloaded (send again).
        """
        _requests.inc()
        deadline = deadline.at_most(self._limits.produce_timeout_s)
        try:
            with _seconds.time():
                batch = make_batch(labels, counts, ts_ms, values, self._limits)
                with self._inflight.reserve(batch.size) as reservation:
                    return self._write(batch, partial, deadline, reservation)
        except TsdbError as error:
            count_refused_request(error, len(ts_ms))
            raise

    def close(self) -> None:
        """Refuse further requests as draining; running ones continue."""
        self._inflight.close()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until the log has answered every append; False after the timeout."""
        return self._inflight.wait_idle(timeout_s)

    @property
    def inflight_bytes(self) -> int:
        """Bytes of requests that the log has not answered yet."""
        return self._inflight.bytes

    def _write(self, batch: Batch, partial: bool, deadline: Deadline, reservation: Reservation) -> WriteResult:
        rows = self._cache.resolve(batch.labels)
        validation = validate(batch, rows, self._time_set, self._clock.now_ms(), self._cache.canonical)
        refusals = validation.refusals or Refusals()
        good = validation.good
        if refusals.rows and not partial:
            raise self._refused_whole(batch, rows, refusals)
        due = self._announcements.due(batch, rows, good)
        if due:
            due = self._admission.admit(batch, rows, due, good, refusals, partial=partial)
        if refusals.rows:
            if not partial:
                raise self._refused_whole(batch, rows, refusals)
            self._cache.forget_refused(rows, np.flatnonzero(~good))
        tokens = self._append(batch, rows, good, due, deadline, reservation) if good.any() else []
        count_refused_samples(refusals.samples)
        samples = batch.samples - refusals.samples.total()
        _samples.inc(samples)
        return WriteResult(tokens, samples, refusals.samples, len(refusals.rows), refusals.offenders)

    def _refused_whole(self, batch: Batch, rows: ResolvedRows, refusals: Refusals) -> TsdbError:
        self._cache.forget_refused(rows, np.arange(len(batch.labels)))
        return refusals.error(batch.samples)

    def _append(
        self,
        batch: Batch,
        rows: ResolvedRows,
        good: NDArray[np.bool_],
        due: Sequence[Due],
        deadline: Deadline,
        reservation: Reservation,
    ) -> list[RecordToken]:
        self._announcements.ensure(batch, rows, due, deadline, reservation)
        if deadline.remaining() <= 0:
            raise deadline_error("nothing was appended")

        def name(series_id: int) -> str:
            row = int(np.flatnonzero(good & (rows.series_id == np.uint64(series_id)))[0])
            return shown_series(self._cache.canonical(batch.labels[row]))

        # Read before the append: a token may then name a deleted topic, which is an error for its reader, but never an
        # offset of another topic.
        topic_id = self._log.topic_id(METRICS)
        appended = self._appender.append(group(batch, rows, good), deadline, reservation, name)
        return [RecordToken(topic_id, record.partition, record.offset) for record in appended]


def _check(log: Log, partitions: int, time_set: TimeSet, limits: IngestLimits) -> None:
    held = log.partitions(METRICS)
    if held != partitions:
        raise ConfigMismatch(f"the log has {held} partitions; this gateway is set to {partitions}", reason="partitions")
    # Stores keep labels for two windows from their announcement. For one window the gateway relies on it; the second
    # leaves time for the append.
    if 2 * 1000 * limits.produce_timeout_s > time_set.window_ms:
        raise ConfigMismatch(
            f"produce_timeout_s is {limits.produce_timeout_s}; with time set {time_set.name} it must be at most half a "
            f"window, {time_set.window_ms / 2000} s",
            reason="produce_timeout",
        )
