"""The agent's loop: once an interval all sources measure, and what they found goes to the sender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tsdb.cli.agent.measuring import Measuring
from tsdb.cli.agent.sample import Measured, Source
from tsdb.client import WriteBatch
from tsdb.model.clock import Clock

GATHER_S_MAX = 0.5  # How long a round waits for all its sources, and half the interval at most.
LATE_S = 0.25  # Between two looks for what slower sources have found since.


class Taker(Protocol):
    """Takes batches without waiting."""

    def put(self, batch: WriteBatch) -> None:
        """One batch."""


def run(
    sources: Sequence[Source],
    taker: Taker,
    clock: Clock,
    *,
    interval_ms: int,
    duration_ms: int | None = None,
    gather_s: float = GATHER_S_MAX,
    last_wait_s: float = 1.0,
) -> int:
    """Measure until duration_ms is over (None: until interrupted); returns how often it did.

    Rounds keep to a grid from the first one, so that their spacing does not drift. A source that is late goes with a
    later batch, and misses the rounds that begin while it is at work; it delays no other source. gather_s: how long a
    round waits for its sources at most. last_wait_s: the same after the last round.
    """
    began = clock.monotonic()
    rounds = at = 0
    with Measuring(sources) as measuring:
        while True:
            missed = measuring.ask(clock.now_ms())
            _put(taker, missed + measuring.take(min(gather_s, interval_ms / 2000)))
            rounds += 1
            elapsed_ms = (clock.monotonic() - began) * 1000
            at = max(at + 1, int(elapsed_ms // interval_ms) + 1)
            if duration_ms is not None and at * interval_ms >= duration_ms:
                _put(taker, measuring.take(last_wait_s))
                return rounds
            _rest(measuring, taker, clock, began + at * interval_ms / 1000)


def _rest(measuring: Measuring, taker: Taker, clock: Clock, until: float) -> None:
    """Wait for the next round, and hand over what late sources find meanwhile. until: on the monotonic clock."""
    for _ in range(int((until - clock.monotonic()) / LATE_S)):
        if not measuring.busy:
            break
        _put(taker, measuring.take(LATE_S))
    clock.sleep(max(0.0, until - clock.monotonic()))


def _put(taker: Taker, samples: Sequence[Measured]) -> None:
    if samples:
        taker.put(batch_of(samples))


def batch_of(samples: Sequence[Measured]) -> WriteBatch:
    """A batch of one sample an entry."""
    batch = WriteBatch()
    batch.add_columns(
        [sample.canonical for sample in samples],
        np.ones(len(samples), np.uint32),
        np.array([sample.ts_ms for sample in samples], np.int64),
        np.array([sample.value for sample in samples], np.float64),
    )
    return batch
