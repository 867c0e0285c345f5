"""Worker: waits for a log that is down, keeps the exception that ended it, and closes in any state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from support.data.heads import new_head, register
from support.servers.logs import wait_until
from tsdb.head.head import Head
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.interpreter import MallocTrimmer
from tsdb.replay.replay import PartitionProgress, Replay, StepCounts
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition
from tsdb.store.readiness import ReadinessEvaluator
from tsdb.store.reporter import partition_health
from tsdb.store.worker import Worker

CLOCK = SystemClock()


@dataclass
class FakeReplay:
    """A replay whose steps do nothing, or run the test's function."""

    on_step: Callable[[], None] = lambda: None
    waiting: TsdbError | None = None
    steps: int = 0
    closed: bool = False

    def waiting_for(self, partition: int) -> TsdbError | None:
        return self.waiting

    def step(self, timeout_s: float, *, records_max: int) -> StepCounts:
        self.steps += 1
        self.on_step()
        CLOCK.sleep(0.001)
        return StepCounts()

    def wake(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@dataclass
class Bench:
    """A worker of one partition over the test's replay."""

    replay: FakeReplay = field(default_factory=FakeReplay)
    open_errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.partition = Partition(0, "topic", new_head(), PartitionProgress(0), ReadinessEvaluator(), CLOCK)
        self.partition.observe_high_watermark(0, CLOCK.monotonic())
        trimmer = MallocTrimmer(CLOCK, lambda pad: None)
        self.worker = Worker("test", {0: self.partition}, self._open, AppliedSignal(CLOCK), CLOCK, 100, trimmer)

    def _open(self) -> Replay[Head]:
        if self.open_errors:
            raise self.open_errors.pop(0)
        return cast(Replay[Head], self.replay)

    def reason(self) -> str:
        self.partition.observe_high_watermark(0, CLOCK.monotonic())
        return self.partition.status().readiness.reason

    def end(self) -> None:
        self.worker.close()
        assert self.worker.join(60.0)


def test_a_log_that_is_away_at_the_start_is_waited_for() -> None:
    bench = Bench(open_errors=[Unavailable("away", reason="timeout")] * 2)
    bench.worker.start()
    wait_until(lambda: bench.replay.steps > 2, 200.0)
    assert bench.reason() == ""
    assert bench.worker.failure() is None
    bench.end()
    assert bench.replay.closed


def test_a_worker_that_cannot_open_shows_the_reason_and_still_closes() -> None:
    bench = Bench(open_errors=[Unavailable("away", reason="timeout")] * 10_000)
    bench.worker.start()
    wait_until(lambda: bench.reason() == "timeout", 200.0)
    assert bench.worker.silent_s() == 0.0
    bench.end()
    assert bench.replay.steps == 0


def test_the_replays_waiting_reason_is_shown_until_it_continues() -> None:
    bench = Bench(FakeReplay(waiting=Overloaded("full", reason="memory_hard")))
    bench.worker.start()
    wait_until(lambda: bench.reason() == "memory_hard", 200.0)
    bench.replay.waiting = None
    wait_until(lambda: bench.reason() == "")
    bench.end()


def test_a_partition_without_room_names_its_sources_and_the_remedy() -> None:
    bench = Bench(FakeReplay(waiting=Overloaded("partition 0 is full", reason="memory_hard")))
    register(bench.partition.head, range(7))
    bench.worker.start()
    wait_until(lambda: bench.reason() == "memory_hard", 200.0)
    health = partition_health(bench.partition.status())
    message = str(health.details["message"])
    for part in ("partition 0 is full", "7 series", "bytes of labels", "memory_hard_bytes", "source_series_max"):
        assert part in message
    _, snapshot = bench.partition.evaluate()
    with pytest.raises(Unavailable, match="7 series"):
        snapshot.check_fresh(None)
    bench.end()


def test_an_exception_of_a_worker_is_kept_and_its_partitions_are_not_ready() -> None:
    def broken() -> None:
        raise AssertionError("a bug")

    bench = Bench(FakeReplay(on_step=broken))
    bench.worker.start()
    assert bench.worker.join(200.0)
    assert str(bench.worker.failure()) == "a bug"
    assert bench.reason() == "worker_failed"
    assert bench.replay.closed


def test_a_worker_that_never_started_has_ended() -> None:
    assert Bench().worker.join(0.0)
