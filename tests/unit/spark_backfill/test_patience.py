"""A task repeats its work while the log does not answer, for a limited time."""

from __future__ import annotations

import pytest

from spark_backfill.building.patience import AGAIN_AFTER_S, patiently
from tsdb.model.clock import ManualClock
from tsdb.model.errors import LostOffsets, TsdbError, Unavailable

REQUEST_S = 10.0
PATIENCE_S = 60.0


class FailingTask:
    """Fails a number of times, each after the timeout of a request."""

    def __init__(self, clock: ManualClock, failures: int, error: TsdbError) -> None:
        self._clock = clock
        self._failures = failures
        self._error = error
        self.tries = 0

    def __call__(self) -> int:
        self.tries += 1
        if self.tries <= self._failures:
            self._clock.sleep(REQUEST_S)
            raise self._error
        return self.tries


def test_work_that_fails_for_less_than_its_patience_has_a_result() -> None:
    clock = ManualClock()
    work = FailingTask(clock, 5, Unavailable("away", reason="log_unavailable"))
    assert patiently(work, clock, PATIENCE_S) == 6


def test_work_fails_when_its_patience_is_over() -> None:
    clock = ManualClock()
    work = FailingTask(clock, 100, Unavailable("away", reason="log_unavailable"))
    with pytest.raises(Unavailable, match="away"):
        patiently(work, clock, PATIENCE_S)
    assert PATIENCE_S <= clock.monotonic() < PATIENCE_S + REQUEST_S + AGAIN_AFTER_S


def test_an_error_that_waiting_does_not_mend_is_raised_at_once() -> None:
    clock = ManualClock()
    work = FailingTask(clock, 1, LostOffsets("trimmed", reason="chunk_gap"))
    with pytest.raises(LostOffsets):
        patiently(work, clock, PATIENCE_S)
    assert work.tries == 1
