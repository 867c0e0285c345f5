"""An appender ends only when the log has everything; final errors, and failures that last too long, are raised."""

from __future__ import annotations

import pytest

from spark_backfill.writing.appender import TaskAppender
from support.fakes.fake_log import FakeLog, Fault
from tsdb.log.interface import CHUNKS
from tsdb.model.clock import ManualClock
from tsdb.model.errors import InvalidRequest, Overloaded, Unavailable


@pytest.fixture
def log() -> FakeLog:
    return FakeLog(2, ManualClock(0))


class Ticking:
    """Monotonic time that advances with each call."""

    def __init__(self, step_s: float) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def keys(log: FakeLog) -> list[bytes | None]:
    return [record.key for record in log.records]


def test_a_failed_append_is_sent_again(log: FakeLog) -> None:
    faults = iter(
        [Fault(Unavailable("away")), None, Fault(Overloaded("full"), raised=True), Fault(Unavailable("late"), True)]
    )
    log.plan = lambda topic, partition, value: next(faults, None)
    appender = TaskAppender(log, CHUNKS, now_s=Ticking(1.0))
    for number in range(3):
        appender.send(number % 2, b"%d" % number, b"value")
    appender.finish()
    assert set(keys(log)) == {b"0", b"1", b"2"}
    assert (appender.sent_records, appender.sent_bytes) == (3, 18)


def test_a_final_error_is_raised(log: FakeLog) -> None:
    log.plan = lambda topic, partition, value: Fault(InvalidRequest("too large", reason="record_too_large"))
    appender = TaskAppender(log, CHUNKS)
    appender.send(0, b"k", b"v")
    with pytest.raises(InvalidRequest, match="too large"):
        appender.finish()
    with pytest.raises(InvalidRequest, match="too large"):
        appender.send(0, b"k", b"v")


def test_a_log_that_stays_away_is_given_up(log: FakeLog) -> None:
    log.plan = lambda topic, partition, value: Fault(Unavailable("away", reason="timeout"))
    appender = TaskAppender(log, CHUNKS, give_up_s=20.0, now_s=Ticking(1.0))
    appender.send(0, b"k", b"v")
    with pytest.raises(Unavailable, match="away"):
        appender.finish()
    assert log.records == []


def test_no_more_is_in_flight_than_allowed(log: FakeLog) -> None:
    appender = TaskAppender(log, CHUNKS, inflight_bytes_max=10)
    appender.send(0, b"large", b"larger than all that is allowed")
    appender.send(0, b"k", b"v")
    appender.finish()
    assert keys(log) == [b"large", b"k"]
