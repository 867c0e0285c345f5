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


class Ticking(ManualClock):
    """Monotonic time that advances a second with each call."""

    def monotonic(self) -> float:
        self.advance(1_000)
        return super().monotonic()


def keys(log: FakeLog) -> list[bytes | None]:
    return [record.key for record in log.records]


def test_a_failed_append_is_sent_again(log: FakeLog) -> None:
    faults = iter(
        [Fault(Unavailable("away")), None, Fault(Overloaded("full"), raised=True), Fault(Unavailable("late"), True)]
    )
    log.plan = lambda topic, partition, value: next(faults, None)
    appender = TaskAppender(log, CHUNKS, clock=Ticking(0))
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
    appender = TaskAppender(log, CHUNKS, give_up_s=20.0, clock=Ticking(0))
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


def test_a_log_that_answers_nothing_is_given_up(log: FakeLog) -> None:
    log.hold(CHUNKS)
    appender = TaskAppender(log, CHUNKS, give_up_s=5.0, clock=Ticking(0))
    appender.send(0, b"k", b"v")
    with pytest.raises(Unavailable, match="topic chunks acknowledges nothing for 5 s") as given_up:
        appender.finish()
    assert given_up.value.reason == "chunks_not_acknowledged"


def test_a_log_that_is_slow_but_acknowledges_is_not_given_up(log: FakeLog) -> None:
    answers = iter([Fault(Unavailable("away")), None] * 20)
    log.plan = lambda topic, partition, value: next(answers, None)
    appender = TaskAppender(log, CHUNKS, give_up_s=4.0, clock=Ticking(0))
    for number in range(20):
        appender.send(0, b"%d" % number, b"value")
        appender.finish()
    assert len(set(keys(log))) == 20
