"""A time is complete once the log's clock has passed it in every partition; idle partitions get a tick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import Appended, Log
from tsdb.model.clock import ManualClock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.rules.completeness import LogCompleteness, ReplayPosition

GRACE_MS = 1_000
T_MS = 10_000


@dataclass
class Ticks:
    """A log that takes ticks. fails: the error of each append."""

    taken: list[int] = field(default_factory=list)
    fails: TsdbError | None = None

    def append(self, topic: str, partition: int, value: bytes, **rest: Any) -> None:
        assert value == encode_tick()
        if self.fails is not None:
            raise self.fails
        self.taken.append(partition)
        done: Callable[[Appended | TsdbError], None] = rest["on_done"]
        done(Unavailable("away"))


def completeness(log: Ticks, positions: dict[int, ReplayPosition], clock: ManualClock) -> LogCompleteness:
    return LogCompleteness(cast(Log, log), list(positions), positions.__getitem__, GRACE_MS, clock)


def test_every_partition_must_have_passed_the_time_and_its_grace() -> None:
    log, clock = Ticks(), ManualClock(T_MS)
    positions = {0: ReplayPosition(T_MS + GRACE_MS + 1, False), 1: ReplayPosition(T_MS + GRACE_MS, False, "lagging")}
    found = completeness(log, positions, clock)
    assert found.missing(T_MS) == "partitions 1 (lagging) have not passed the time and its grace"
    positions[1] = ReplayPosition(T_MS + GRACE_MS + 1, False)
    assert found.missing(T_MS) == ""
    assert found.missing(T_MS + 1) == "partitions 0, 1 have not passed the time and its grace"
    assert log.taken == []


def test_an_idle_partition_gets_a_tick_once_the_clock_has_passed_the_time() -> None:
    log, clock = Ticks(), ManualClock(T_MS)
    positions = {0: ReplayPosition(None, True), 1: ReplayPosition(5, False)}
    found = completeness(log, positions, clock)
    for step_ms, ticks in ((GRACE_MS, 0), (100, 1), (100, 1), (9_000, 2)):
        clock.advance(step_ms)
        assert found.missing(T_MS)
        assert log.taken == [0] * ticks


def test_a_log_that_takes_no_tick_leaves_the_time_incomplete() -> None:
    log, clock = Ticks(fails=Unavailable("away")), ManualClock(T_MS + 2 * GRACE_MS)
    assert completeness(log, {0: ReplayPosition(None, True)}, clock).missing(T_MS)
