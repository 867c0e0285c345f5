"""The agent's loop: once an interval all sources measure, and one batch goes to the sender."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from tsdb.cli.agent.sample import Measured, Source
from tsdb.client import WriteBatch
from tsdb.model.clock import Clock


class Taker(Protocol):
    """Takes batches without waiting."""

    def put(self, batch: WriteBatch) -> None:
        """One batch."""


def run(
    sources: Sequence[Source], taker: Taker, clock: Clock, *, interval_ms: int, duration_ms: int | None = None
) -> int:
    """Measure until duration_ms is over (None: until interrupted); returns how often it did.

    Rounds keep to a grid from the first one, so that their spacing does not drift; rounds that a slow source made
    impossible are left out. Sources measure at the same time: one slow endpoint does not shift the others.
    """
    began = clock.monotonic()
    rounds = at = 0
    with ThreadPoolExecutor(max(1, len(sources)), thread_name_prefix="agent-source") as threads:
        while True:
            now_ms = clock.now_ms()
            found = [threads.submit(source.measure, now_ms) for source in sources]
            taker.put(batch_of([sample for samples in found for sample in samples.result()]))
            rounds += 1
            elapsed_ms = (clock.monotonic() - began) * 1000
            at = max(at + 1, int(elapsed_ms // interval_ms) + 1)
            if duration_ms is not None and at * interval_ms >= duration_ms:
                return rounds
            clock.sleep(max(0.0, (at * interval_ms - elapsed_ms) / 1000))


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
