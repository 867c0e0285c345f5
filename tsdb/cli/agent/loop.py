"""The agent's loop: once an interval all sources measure, and their samples go to the sender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tsdb.cli.agent.measuring import Measuring
from tsdb.cli.agent.sample import Measured, SampleSource
from tsdb.client import WriteBatch
from tsdb.model.clock import Clock

GATHER_S_MAX = 0.5  # Longest time that a round waits for all its sources; at most half the interval.
LATE_S = 0.25  # Interval of the check for samples of slower sources.


class Taker(Protocol):
    """The destination of batches."""

    def put(self, batch: WriteBatch) -> None:
        """Take one batch without waiting."""


def run(
    sources: Sequence[SampleSource],
    taker: Taker,
    clock: Clock,
    *,
    interval_ms: int,
    duration_ms: int | None = None,
    gather_s: float = GATHER_S_MAX,
    last_wait_s: float = 1.0,
) -> int:
    """Measure until duration_ms is over (None: until interrupted). Returns the number of rounds.

    Rounds start on a fixed grid from the first one, so that their spacing does not drift. Samples of a slow source go
    into a later batch; the source misses the rounds that begin while it is busy, and delays no other source. gather_s:
    longest wait of a round for its sources. last_wait_s: the same after the last round.
    """
    began = clock.monotonic()
    rounds = at = 0
    with Measuring(sources) as measuring:
        while True:
            missed = measuring.begin_round(clock.now_ms())
            _put(taker, missed + measuring.take(min(gather_s, interval_ms / 2000)))
            rounds += 1
            elapsed_ms = (clock.monotonic() - began) * 1000
            at = max(at + 1, int(elapsed_ms // interval_ms) + 1)
            if duration_ms is not None and at * interval_ms >= duration_ms:
                _put(taker, measuring.take(last_wait_s))
                return rounds
            _rest(measuring, taker, clock, began + at * interval_ms / 1000)


def _rest(measuring: Measuring, taker: Taker, clock: Clock, until: float) -> None:
    """Wait for the next round, and pass on samples of slow sources meanwhile. until: a time on the monotonic clock."""
    for _ in range(int((until - clock.monotonic()) / LATE_S)):
        if not measuring.busy:
            break
        _put(taker, measuring.take(LATE_S))
    clock.sleep(max(0.0, until - clock.monotonic()))


def _put(taker: Taker, samples: Sequence[Measured]) -> None:
    if samples:
        taker.put(batch_of(samples))


def batch_of(samples: Sequence[Measured]) -> WriteBatch:
    """A batch with one entry for each sample."""
    batch = WriteBatch()
    batch.add_columns(
        [sample.canonical for sample in samples],
        np.ones(len(samples), np.uint32),
        np.array([sample.ts_ms for sample in samples], np.int64),
        np.array([sample.value for sample in samples], np.float64),
    )
    return batch
