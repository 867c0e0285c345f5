"""The loop keeps to its grid, ends after its duration, and one batch holds the samples of all sources."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tsdb.cli.agent.measuring import run
from tsdb.cli.agent.sample import Measured
from tsdb.client import RequestLimits, WriteBatch
from tsdb.model.clock import ManualClock
from tsdb.model.labels import metric_name


class BatchSink:
    def __init__(self) -> None:
        self.batches: list[WriteBatch] = []

    def put(self, batch: WriteBatch) -> None:
        self.batches.append(batch)


class Slow:
    """A source whose measurements take the given seconds, one after another."""

    name = b"x"

    def __init__(self, clock: ManualClock, takes_ms: list[int]) -> None:
        self._clock = clock
        self._takes_ms = takes_ms
        self.times: list[int] = []
        self.missed_times: list[int] = []

    def measure(self, now_ms: int) -> list[Measured]:
        self.times.append(now_ms)
        self._clock.advance(self._takes_ms.pop(0) if self._takes_ms else 0)
        return [Measured(b"__name__\xff" + self.name, now_ms, 1.0)]

    def missed(self, now_ms: int) -> list[Measured]:
        self.missed_times.append(now_ms)
        return [Measured(b"__name__\xffmissed_" + self.name, now_ms, 0.0)]


class Hanging(Slow):
    """A source that never ends, until released."""

    name = b"late"

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, [])
        self.released = threading.Event()

    def measure(self, now_ms: int) -> list[Measured]:
        self.released.wait(60)
        return super().measure(now_ms)


def test_rounds_keep_to_the_grid_although_measuring_takes_time() -> None:
    clock, sink = ManualClock(5_000), BatchSink()
    source = Slow(clock, [300, 0, 900])
    assert run([source], sink, clock, interval_ms=1_000, duration_ms=5_000) == 5
    assert source.times == [5_000, 6_000, 7_000, 8_000, 9_000]
    assert clock.now_ms() == 9_000


def test_rounds_that_a_slow_source_made_impossible_are_left_out() -> None:
    clock, sink = ManualClock(0), BatchSink()
    source = Slow(clock, [2_500])
    run([source], sink, clock, interval_ms=1_000, duration_ms=5_000)
    assert source.times == [0, 3_000, 4_000]


def test_a_batch_holds_the_samples_of_all_sources() -> None:
    clock, sink = ManualClock(7), BatchSink()
    run([Slow(clock, []), Slow(clock, [])], sink, clock, interval_ms=1_000, duration_ms=1)
    [batch] = sink.batches
    [part] = batch.parts(RequestLimits())
    assert batch.samples == 2
    assert np.frombuffer(part.request.ts_ms, "<i8").tolist() == [7, 7]


def test_a_source_that_hangs_delays_no_other_and_misses_its_rounds() -> None:
    clock, sink = ManualClock(0), BatchSink()
    hanging, healthy = Hanging(clock), Slow(clock, [])
    rounds = run([hanging, healthy], sink, clock, interval_ms=250, duration_ms=1_000, gather_s=0.02, last_wait_s=0.02)
    assert rounds == 4
    missed = [ts for batch in sink.batches for name, ts in named(batch) if name == b"missed_late"]
    assert missed == [250, 500, 750]
    # On a busy machine its thread may itself be late for a round.
    assert sorted(healthy.times + healthy.missed_times) == [0, 250, 500, 750]
    assert healthy.times[0] == 0
    hanging.released.set()


def test_what_a_late_source_finds_goes_with_a_later_batch() -> None:
    clock = ManualClock(0)
    late, healthy = Hanging(clock), Slow(clock, [])

    class Releasing(BatchSink):
        def put(self, batch: WriteBatch) -> None:
            super().put(batch)
            late.released.set()

    sink = Releasing()
    run([late, healthy], sink, clock, interval_ms=1_000, duration_ms=20_000, gather_s=0.02, last_wait_s=60.0)
    first, *later = (named(batch) for batch in sink.batches)
    assert (b"x", 0) in first
    assert (b"late", 0) not in first
    assert (b"late", 0) in [sample for batch in later for sample in batch]


def test_a_bug_in_a_source_ends_the_agent() -> None:
    class Broken(Slow):
        def measure(self, now_ms: int) -> list[Measured]:
            raise AssertionError("a bug")

    clock = ManualClock(0)
    with pytest.raises(AssertionError, match="a bug"):
        run([Broken(clock, [])], BatchSink(), clock, interval_ms=1_000, duration_ms=1)


def named(batch: WriteBatch) -> list[tuple[bytes, int]]:
    """(metric name, time) of each sample of a batch with one sample a series."""
    return [
        (metric_name(labels), ts)
        for part in batch.parts(RequestLimits())
        for labels, ts in zip(part.request.labels, np.frombuffer(part.request.ts_ms, "<i8").tolist(), strict=True)
    ]
