"""Write pipeline: takes the arrays of all protocols to the log. It uses no types of a protocol.

Steps: shape, bytes in flight, series, validation, admission, grouping, announcements, append, acknowledgement. The
first steps run on the caller's thread, the others on threads of the log, as its answers come. No thread waits.
Thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial as bound

import numpy as np
from numpy.typing import NDArray

from ingest.appends.joined import JoinedAppends
from ingest.appends.records import group, record_counts
from ingest.appends.timer import ThreadTimer, Timer
from ingest.broker_clock import BrokerClock
from ingest.exemplars import ExemplarPart, accepted_total, chosen_exemplars, exemplar_parts
from ingest.inflight import Reservation, inflight_bytes, reserve
from ingest.limits import IngestLimits
from ingest.quota.limits_file import LiveLimits
from ingest.quota.source_quota import PackSources, SourceQuota
from ingest.refusals import (
    Offender,
    Refusals,
    count_refused_request,
    count_refused_samples,
    deadline_error,
    shown_series,
)
from ingest.rows import ResolvedSeries, Rows
from ingest.series.admission import SeriesAdmission, shown_source
from ingest.series.announcements import NEW, AgeClock, Announcements, DueAnnouncements
from ingest.series.resolver import SeriesResolver
from ingest.series.table import SeriesTable
from ingest.validate import check_shape, validate
from tsdb.log.chains import chain_of
from tsdb.log.interface import METRICS, Appended, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch, TsdbError
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import TimeSet
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import adder, counter, histogram

_add_samples = adder(
    counter("tsdb_ingest_samples_total", "Accepted samples: the log has them, and readers will show them.")
)
_add_requests = adder(counter("tsdb_ingest_requests_total", "Write requests that reached the pipeline."))
_seconds = histogram("tsdb_ingest_write_duration_seconds", "From a request's arrays to its answer.")

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RecordToken:
    """Position in the log of one record of an accepted request."""

    topic_id: str
    partition: int
    record_offset: int


@dataclass(frozen=True, slots=True)
class AcceptedWrite:
    """`samples`: accepted samples, in the records of `tokens`. Only a partial write has refused rows.

    refused: samples of refused rows, by reason. refused_rows: all refused rows; offenders are the first of them.
    retry_after_s: time after which the request may be sent again, when rows were refused for the rate of their source.
    exemplars: accepted exemplars.
    """

    tokens: list[RecordToken]
    samples: int
    refused: Mapping[str, int]
    refused_series: int
    offenders: list[Offender]
    refused_rows: Collection[int] = ()
    retry_after_s: float | None = None
    exemplars: int = 0

    @property
    def refused_samples(self) -> int:
        """Samples of all refused rows."""
        return sum(self.refused.values())


Submit = Callable[[Rows, bool, Deadline], Future[AcceptedWrite]]
"""`WritePipeline.submit`, as protocols see it."""


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
        timer: Timer | None = None,
    ) -> None:
        """timer: runs joined appends and deadlines; without one the pipeline creates a timer with a thread."""
        _check(log, partitions, time_set, limits)
        self._log = log
        self._time_set = time_set
        self._limits = limits
        self._clock = clock
        self._inflight = ByteBudget(limits.inflight_bytes_max, gauge=inflight_bytes)
        self._age = AgeClock(clock)
        self._table = SeriesTable(limits.series_table_bytes, time_set.window_ms)
        self._resolver = SeriesResolver(self._table, rule, partitions, limits)
        self.limits_now = LiveLimits(limits, rule, clock)
        self._quota = SourceQuota(clock)
        self._pack_sources = PackSources()
        self._rule = rule
        self._admission = SeriesAdmission(self._resolver, rule, self.limits_now.series, time_set.window_ms, clock)
        self._announcements = Announcements(log, self._table, self._resolver, time_set, self._age)
        self._broker_clock = BrokerClock(log, partitions, time_set.gateway_ahead_ms, clock)
        self._thread_timer = ThreadTimer("append-timer")  # It has no thread until its first call.
        chain = chain_of("gateway", clock.now_ms)
        self._appends = JoinedAppends(
            log,
            partitions,
            limits.record_bytes_max,
            time_set.ahead_ms,
            chain,
            timer or self._thread_timer,
            self._broker_clock,
        )

    def submit(self, rows: Rows, partial: bool, deadline: Deadline) -> Future[AcceptedWrite]:
        """Write rows: all or nothing, unless `partial`: then bad series are refused whole and listed.

        The future ends when the log has every accepted sample, or with InvalidRequest (nothing was written),
        Unavailable or Overloaded (send again). A row without samples is ignored. No thread waits meanwhile; the future
        may end on a thread of the log.
        """
        _add_requests(1)
        write = _Write(rows)
        try:
            check_shape(rows, self._limits)
            self._broker_clock.check()
            with reserve(self._inflight, rows.nbytes) as reservation:
                self._write(write, partial, deadline.at_most(self._limits.produce_timeout_s), reservation)
        except TsdbError as error:
            write.fail(error.with_traceback(None))  # Its frames refer to the rows, and the future refers to the error.
        return write.done

    def write(self, rows: Rows, partial: bool, deadline: Deadline) -> AcceptedWrite:
        """`submit`, and wait for the result."""
        return self.submit(rows, partial, deadline).result()

    def failure(self) -> BaseException | None:
        """The exception that ended the timer's thread: deadlines and joined appends end no more."""
        return self._thread_timer.failure()

    def watch_clock(self) -> None:
        """Compare the clock with those of the brokers also where no append of samples does."""
        self._broker_clock.watch()

    def problem(self) -> tuple[str, str]:
        """Reason and message why this gateway is not ready: a wrong clock. Empty while it is right."""
        return self._broker_clock.problem()

    def close(self) -> None:
        """Refuse further requests as draining; running ones continue."""
        self._inflight.close()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until the log has answered every append; False after the timeout."""
        return self._inflight.wait_idle(timeout_s)

    @property
    def exemplars_max(self) -> int:
        """Exemplars of one request; a protocol drops the others before it makes objects of them."""
        return self._limits.exemplars_max

    @property
    def inflight_bytes(self) -> int:
        """Bytes of requests that the log has not answered yet."""
        return self._inflight.bytes

    def _write_measured(
        self, write: _Write, partial: bool, deadline: Deadline, reservation: Reservation, error: TsdbError | None
    ) -> None:
        """Write rows that seem out of time, now that the clock is compared with that of a broker."""
        try:
            if error is not None:
                raise error
            self._broker_clock.check()
            if deadline.expired:
                raise deadline_error("nothing was appended")
            self._write(write, partial, deadline, reservation, measured=True)
        except TsdbError as known:
            write.fail(known.with_traceback(None))
        except Exception as bug:
            logger.error("write failed", error=str(bug), exc_info=bug)
            write.fail(TsdbError("internal error of the gateway; its log has the details"))
        finally:
            reservation.release()

    def _write(
        self,
        write: _Write,
        partial: bool,
        deadline: Deadline,
        reservation: Reservation,
        *,
        measured: bool = False,
    ) -> None:
        """measured: the clock was compared with that of a broker for these rows."""
        rows = write.rows
        age_ms = self._age.now_ms()
        series = self._resolver.resolve(rows, age_ms)
        canonical = bound(self._resolver.canonical, rows)
        validation = validate(rows, series, self._time_set, self._clock.now_ms(), canonical)
        if validation.by_time and not self._broker_clock.fresh and not measured:
            reservation.hold()
            self._broker_clock.measure(bound(self._write_measured, write, partial, deadline, reservation))
            return
        refusals = validation.refusals or Refusals()
        good = validation.good
        if refusals.rows and not partial:
            raise refusals.error(rows.samples)
        self._check_rates(rows, series, good, refusals, partial=partial)
        due = self._announcements.due(rows, series, good, age_ms)
        if due:
            due = self._admission.admit(rows, due, good, refusals, partial=partial)
        if refusals.rows and not partial:
            raise refusals.error(rows.samples)
        exemplars = () if rows.exemplars is None else self._exemplars(rows, series, good, refusals, age_ms)
        if good.any() or exemplars:
            self._append(write, series, good, exemplars, refusals, due, deadline, reservation)
        else:
            write.accept([], refusals)

    def _exemplars(
        self, rows: Rows, series: ResolvedSeries, good: NDArray[np.bool_], refusals: Refusals, age_ms: int
    ) -> Sequence[ExemplarPart]:
        """The records of the accepted exemplars."""
        assert rows.exemplars is not None, "the caller has checked"
        newest_ms = self._clock.now_ms() + self._time_set.ahead_ms
        which = chosen_exemplars(rows.exemplars, series, good, refusals.rows, age_ms, newest_ms)
        return exemplar_parts(rows.exemplars, series, which, self._appends.record_bytes_max)

    def _check_rates(
        self, rows: Rows, series: ResolvedSeries, good: NDArray[np.bool_], refusals: Refusals, *, partial: bool
    ) -> None:
        """Remove the rows of sources over a rate. Raises Overloaded when no row is left, or without `partial`."""
        limits = self.limits_now.source_rates()
        if not limits.limited:
            return
        samples = np.diff(rows.starts)
        sources = self._pack_sources.of(
            series.pack_id, good, lambda which: self._resolver.normalize(rows, which).source
        )
        over = self._quota.check(sources, samples, good, limits, whole=not partial)
        for one in over:
            text = one.text(shown_source(self._resolver.canonical(rows, int(one.rows[0])), self._rule))
            refusals.add_rate(one.rows, int(samples[one.rows].sum()), one.reason, text, one.wait_s)
            self._quota.warn(one.reason, text)
            good[one.rows] = False
        if over and not (partial and good.any()):
            raise refusals.error(rows.samples)

    def _append(
        self,
        write: _Write,
        series: ResolvedSeries,
        good: NDArray[np.bool_],
        exemplars: Sequence[ExemplarPart],
        refusals: Refusals,
        due: Sequence[DueAnnouncements],
        deadline: Deadline,
        reservation: Reservation,
    ) -> None:
        rows = write.rows
        # Read before the append: a token may then name a deleted topic, which is an error for its reader, but never an
        # offset of another topic.
        topic_id = self._log.topic_id(METRICS)

        def name(series_id: int) -> str:
            named = np.flatnonzero(series.series_id == np.uint64(series_id))
            accepted = named[good[named]]  # Empty when only an exemplar names the series.
            return shown_series(self._resolver.canonical(rows, int((accepted if len(accepted) else named)[0])))

        def answer(result: list[Appended] | TsdbError) -> None:
            if isinstance(result, TsdbError):
                write.fail(result)
            else:
                tokens = [RecordToken(topic_id, one.partition, one.offset) for one in result]
                write.accept(tokens, refusals, sum(record_counts(one.data)[1] for one in exemplars))

        def append(error: TsdbError | None) -> None:
            if error is None and deadline.expired:
                error = deadline_error("nothing was appended")
            if error is None:
                self._appends.append(request, grouped, exemplars)
            else:
                request.refuse(error)

        grouped = group(rows, series, good) if good.any() else None
        new_series = sum(len(one.rows) for one in due if one.kind == NEW)
        request = self._appends.begin(reservation, name, new_series, answer)
        self._announcements.announce(series, due, reservation, append)
        self._appends.expire_after(request, deadline)


class _Write:
    """One request on its way: its future, and what is counted with its answer."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.done: Future[AcceptedWrite] = Future()
        self._began_at = time.perf_counter()

    def accept(self, tokens: list[RecordToken], refusals: Refusals, exemplars: int = 0) -> None:
        """The log has the samples of all rows that are not refused, and this number of exemplars."""
        samples = self.rows.samples - refusals.samples.total()
        count_refused_samples(refusals.samples)
        _add_samples(samples)
        if exemplars:
            accepted_total.inc(exemplars)
        self._count()
        self.done.set_result(
            AcceptedWrite(
                tokens,
                samples,
                refusals.samples,
                len(refusals.rows),
                refusals.offenders,
                refusals.rows,
                refusals.retry_after_s,
                exemplars,
            )
        )

    def fail(self, error: TsdbError) -> None:
        """No sample is acknowledged."""
        count_refused_request(error, self.rows.samples)
        self._count()
        self.done.set_exception(error)

    def _count(self) -> None:
        _seconds.observe(time.perf_counter() - self._began_at)


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
