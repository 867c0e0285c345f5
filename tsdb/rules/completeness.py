"""Completeness: tells whether all samples of a time are readable, by the log's clock.

A partition is complete at T when a record with a broker time past T + grace is applied: what comes later for T is late
by definition. Where nothing comes, a record without samples (a tick) is appended, so that the log's own clock decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS, Appended, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.rules.placement import Partitions

AGAIN_S = 0.5  # Time between two ticks of a partition.

_ticks = counter("tsdb_ruler_ticks_total", "Records without samples that the ruler appended to idle partitions.")
_tick_failures = counter("tsdb_ruler_tick_failures_total", "Ticks of the ruler that the log did not take.")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReplayPosition:
    """How far a partition is applied. watermark_ms: the newest broker time of its applied records. at_end: nothing is
    left to apply, as far as known. reason: why it answers no reads, or ""."""

    watermark_ms: int | None
    at_end: bool
    reason: str = ""


class LogCompleteness:
    """Used by the thread of the ruler. position: asks for one partition of the log."""

    def __init__(
        self,
        log_: Log,
        partitions: Sequence[int],
        position: Callable[[int], ReplayPosition],
        grace_ms: int,
        clock: Clock,
    ) -> None:
        self._log = log_
        self._partitions = partitions
        self._position = position
        self._grace_ms = grace_ms
        self._clock = clock
        self._again_at: dict[int, float] = {}

    def missing(self, at_ms: int, partitions: Partitions = None) -> str:
        """Why not all samples up to at_ms of these partitions are readable; "" when they are."""
        wanted_ms = at_ms + self._grace_ms
        behind: list[str] = []
        for number in self._partitions:
            if partitions is not None and number not in partitions:
                continue
            position = self._position(number)
            watermark_ms = position.watermark_ms
            if watermark_ms is None or watermark_ms <= wanted_ms:
                behind.append(f"{number} ({position.reason})" if position.reason else f"{number}")
                if position.at_end:
                    self._tick(number, wanted_ms)
        return f"partitions {', '.join(behind)} have not passed the time and its grace" if behind else ""

    def _tick(self, number: int, wanted_ms: int) -> None:
        """Append a tick to a partition at its end, once the clock has passed the time."""
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        if now_ms <= wanted_ms or now < self._again_at.get(number, 0.0):
            return
        self._again_at[number] = now + AGAIN_S
        _ticks.inc()
        try:
            # The broker uses this timestamp only where the topic is set to CreateTime.
            self._log.append(METRICS, number, encode_tick(), timestamp_ms=now_ms, on_done=_answered)
        except TsdbError as error:
            _answered(error)


def _answered(answer: Appended | TsdbError) -> None:
    if isinstance(answer, TsdbError):
        _tick_failures.inc()
        log.warning("tick of the ruler not appended", reason=answer.reason, error=answer.message)
