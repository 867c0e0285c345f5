"""Readiness of one partition: computes it from the observations, with hysteresis. Pure.

Lag in time is min(now - broker time applied, time since next_offset last equalled a fresh high watermark), and 0 when
caught up. The first term is right during a replay. The second is right after an idle stretch, when the last record is
old but nothing is missing. A broker clock that is ahead makes the first term too small, so that term is at least the
time since next_offset last moved: a stall still shows. A partition becomes ready below `enter_s` and stops being ready
above `leave_s`, so it does not flap.

Beyond the freshness objective the lag is certain and needs no clock but this process's: it is the age of the newest
high watermark that next_offset has passed. The head has every record that was acknowledged before that high watermark
was requested.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

ENTER_S = 5.0
FRESH_S = 1.0  # The freshness objective: from here on answers state the lag.
MARKS_MAX = 240  # High watermarks that are not passed yet: two minutes of them, at one each half second.
LEAVE_S = 20.0
HIGH_WATERMARK_OLD = "high_watermark_old"  # The reason of a partition whose log does not answer.
HIGH_WATERMARK_AGE_MAX_S = 10.0  # Without a fresh high watermark, missing records cannot be ruled out.


@dataclass(frozen=True, slots=True)
class Observation:
    """Progress of one partition at one moment.

    next_offset: next record to read. applied_broker_ms: broker time of the last applied record, None before the first.
    high_watermark: the broker's, fetched at `high_watermark_at` (monotonic seconds); None before the first fetch.
    stopped: reason why records are no longer applied, for good or for now; empty while they are.
    """

    next_offset: int
    applied_broker_ms: int | None
    high_watermark: int | None
    high_watermark_at: float
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class PartitionReadiness:
    """Readiness and lag of one partition. reason: empty when ready. lag_ms: None while it is not known."""

    ready: bool
    reason: str
    lag_records: int | None
    lag_ms: int | None


def is_stable(readiness: PartitionReadiness) -> bool:
    """Whether the result stays valid while the observation is unchanged and its high watermark is fresh."""
    return readiness.ready and readiness.lag_records == 0 and readiness.lag_ms == 0


def is_fresh(high_watermark_at: float, monotonic: float) -> bool:
    """Whether a partition that has passed a high watermark fetched at high_watermark_at is within the objective."""
    return monotonic - high_watermark_at <= FRESH_S


def is_old(high_watermark_at: float, monotonic: float) -> bool:
    """Whether a high watermark fetched at high_watermark_at is too old to use."""
    return monotonic - high_watermark_at > HIGH_WATERMARK_AGE_MAX_S


class ReadinessEvaluator:
    """Keeps the last result for the hysteresis, and the times of the last catch-up and the last move. One thread at a
    time."""

    def __init__(self, *, enter_s: float = ENTER_S, leave_s: float = LEAVE_S) -> None:
        self._enter_ms = enter_s * 1000
        self._leave_ms = leave_s * 1000
        self._ready = False
        # (high watermark, when it was fetched) that next_offset has not passed, ascending by time.
        self._marks: deque[tuple[int, float]] = deque()
        self._fetched_at: float | None = None
        self._caught_up_at: float | None = None
        self._next_offset: int | None = None
        self._moved_at = 0.0

    def evaluate(self, seen: Observation, *, now_ms: int, monotonic: float) -> PartitionReadiness:
        """Readiness now. Reasons: `seen.stopped`, high_watermark_unknown, high_watermark_old, replaying, lagging."""
        if seen.next_offset != self._next_offset:
            self._next_offset, self._moved_at = seen.next_offset, monotonic
        if seen.high_watermark is not None:
            self.observe(seen.next_offset, seen.high_watermark, seen.high_watermark_at)
        lag_records, lag_ms = self._lag(seen, now_ms, monotonic)
        reason = self._reason(seen, lag_ms, monotonic)
        self._ready = not reason
        return PartitionReadiness(self._ready, reason, lag_records, lag_ms)

    def observe(self, next_offset: int, high_watermark: int, at: float) -> None:
        """Compare the position with this high watermark, fetched at monotonic time `at`, and with those before it."""
        if self._fetched_at is None or at > self._fetched_at:
            self._fetched_at = at
            if len(self._marks) == MARKS_MAX:
                # The older a mark is, the less its neighbours matter: the lag is at most half too large.
                self._marks = deque(list(self._marks)[::2])
            self._marks.append((high_watermark, at))
        while self._marks and self._marks[0][0] <= next_offset:
            self._caught_up_at = self._marks.popleft()[1]

    def _lag(self, seen: Observation, now_ms: int, monotonic: float) -> tuple[int | None, int | None]:
        if seen.high_watermark is None:
            return None, None
        lag_records: int | None = max(0, seen.high_watermark - seen.next_offset)
        if not lag_records and not is_fresh(seen.high_watermark_at, monotonic):
            lag_records = None  # Records may have come since the log last answered.
        certain_ms = None if self._caught_up_at is None else (monotonic - self._caught_up_at) * 1000
        if certain_ms is not None and certain_ms > FRESH_S * 1000:
            return lag_records, round(certain_ms)
        if lag_records == 0:
            return 0, 0
        ages = [] if certain_ms is None else [certain_ms]
        if seen.applied_broker_ms is not None:
            ages.append(max(now_ms - seen.applied_broker_ms, (monotonic - self._moved_at) * 1000))
        return lag_records, max(0, int(min(ages))) if ages else None

    def _reason(self, seen: Observation, lag_ms: int | None, monotonic: float) -> str:
        if seen.stopped:
            return seen.stopped
        if seen.high_watermark is None:
            return "high_watermark_unknown"
        if is_old(seen.high_watermark_at, monotonic):
            return HIGH_WATERMARK_OLD
        if lag_ms is None:
            return "replaying"
        if self._ready:
            return "lagging" if lag_ms > self._leave_ms else ""
        if lag_ms >= self._enter_ms:
            return "lagging" if self._caught_up_at is not None else "replaying"
        return ""
