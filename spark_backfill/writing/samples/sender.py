"""Sender: rows through the gateway's pipeline into the log, from a worker. Its rules are the gateway's.

A worker keeps the pipeline from task to task: a new one knows no series and announces each again. Writing rows again is
safe: of two samples of one series and time the later record counts, and both have the same value.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ingest.pipeline import AcceptedWrite, WritePipeline
from ingest.refusals import RefusedSeries
from ingest.rows import Rows
from ingest.validate import accepted_times
from spark_backfill.writing.samples.options import SampleOptions
from spark_backfill.writing.samples.rows import SampleBatch
from tsdb.log.interface import METRICS
from tsdb.log.meta import require_meta
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.errors import InvalidRequest, Overloaded, Unavailable
from tsdb.model.placement import PlacementRule
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger

SEND_AGAIN_S = 0.5
GIVE_UP_S = 120.0  # After this time with failures only, the task fails, and Spark decides whether to repeat it.
# A repeat does not help against these: clocks that differ, and a log that was created again.
_FINAL = frozenset({"clock", "topic_recreated", "topic_deleted", "unknown_topic"})
_NEXT_STEP = {
    "too_old": "import older samples into history (docs/spark/jobs.md)",
    "too_far_ahead": "correct the column ts, or this machine's clock",
    "source_series_limit": "raise source_series_max in the option ingest_settings",
    "gateway_series_limit": "raise gateway_series_max in the option ingest_settings",
}
_OF_LABELS = "correct the column labels"

log = get_logger(__name__)


@dataclass
class SendResult:
    """samples, records: counts acknowledged by the log. refused: left-out rows by reason. example: the first such
    row."""

    samples: int = 0
    records: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    example: str = ""


class SampleSender:
    """One thread. Raises ConfigMismatch (meta), and as the log and WritePipeline do."""

    def __init__(
        self,
        options: SampleOptions,
        clock: Clock | None = None,
        *,
        give_up_s: float = GIVE_UP_S,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._give_up_s = give_up_s
        self._wait = wait
        self._log = options.places.open_log()
        try:
            shared = require_meta(self._log)
            self._time_set = shared.time_set
            rule = PlacementRule(shared.placement_labels)
            self._pipeline = WritePipeline(
                self._log, rule, shared.partitions, shared.time_set, options.limits, self._clock
            )
        except BaseException:
            self._log.close()
            raise

    @property
    def topic_id(self) -> str:
        """Id of the log topic."""
        return self._log.topic_id(METRICS)

    def send(self, rows: SampleBatch, into: SendResult, *, drop: bool) -> None:
        """Write all rows; the log has every accepted one on return. `into` is counted up.

        Raises InvalidRequest or Overloaded for a refused row, unless `drop`: then the row is counted. Raises
        Unavailable and Overloaded when the log does not answer for give_up_s.
        """
        for piece in rows.pieces(self._options.limits):
            if drop:
                self._send_good(piece, into)
            else:
                self._send_all(piece.by_series(), into)

    def close(self) -> None:
        """Release the connection to the log."""
        self._log.close()

    def _send_good(self, rows: SampleBatch, into: SendResult) -> None:
        """Write the rows that the rules accept.

        The pipeline refuses a whole series of a request for one bad timestamp. So samples with a bad timestamp are sent
        alone.
        """
        oldest_ms, newest_ms = accepted_times(self._time_set, self._clock.now_ms())
        in_time = (rows.ts_ms >= oldest_ms) & (rows.ts_ms <= newest_ms)
        if in_time.any():
            self._send_partial(rows.where(in_time).by_series(), into)
        if not in_time.all():
            self._send_partial(rows.where(~in_time).each_alone(), into)

    def _send_all(self, request: Rows, into: SendResult) -> None:
        try:
            _count(self._write(request, partial=False), into)
        except RefusedSeries as error:
            raise _refused(error) from error

    def _send_partial(self, request: Rows, into: SendResult) -> None:
        try:
            _count(self._write(request, partial=True), into)
        except InvalidRequest as error:
            if error.reason != "request_too_large":
                raise
            # The request has one row, whose labels alone are over the limit of a request.
            into.refused["labels_too_long"] += request.samples
            into.example = into.example or error.message

    def _write(self, request: Rows, *, partial: bool) -> AcceptedWrite:
        """Write a request, again while the log does not answer."""
        give_up = Deadline.after(self._give_up_s)
        while True:
            deadline = Deadline.after(self._options.limits.produce_timeout_s)
            try:
                return self._pipeline.write(request, partial, deadline)
            except (Unavailable, Overloaded) as error:
                if error.reason in _FINAL or give_up.remaining() <= 0:
                    raise
                log.warning("not written yet", reason=error.reason, error=error.message)
                self._wait(error.retry_after_s or SEND_AGAIN_S)


def _count(result: AcceptedWrite, into: SendResult) -> None:
    into.samples += result.samples
    into.records += len(result.tokens)
    into.refused.update(result.refused)
    if result.offenders and not into.example:
        into.example = result.offenders[0].message


def _refused(error: RefusedSeries) -> InvalidRequest:
    more = len(error.offenders) - 1
    next_step = _NEXT_STEP.get(error.reason, _OF_LABELS)
    return InvalidRequest(
        f"a sample is refused: {error.offenders[0].message}{f' (and {more} more series)' if more else ''}; rows before"
        f" it may be in the log, and writing them again is safe; {next_step}, or set the option on_refused=drop",
        reason=error.reason,
    )


_kept: tuple[SampleOptions, SampleSender] | None = None  # A worker runs one task at a time.


def worker_sender(options: SampleOptions) -> SampleSender:
    """The sender of this process, made at first use. Call `forget_sender` after an error."""
    global _kept
    if _kept is None or _kept[0] != options:
        forget_sender()
        _kept = options, SampleSender(options)
    return _kept[1]


def forget_sender() -> None:
    """Close the sender of this process, if there is one."""
    global _kept
    if _kept is not None:
        kept, _kept = _kept, None
        kept[1].close()
