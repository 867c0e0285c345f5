"""A chunker killed again and again while samples flow: in the end `chunks` is what the log says, byte for byte."""

from __future__ import annotations

import random
import time

from support.chunkers import assert_uninterrupted, chunker_options, running, wait_emitted, windows_in
from support.late_writer import LateWriter
from support.logs import wait_until
from tsdb.log.interface import Log
from tsdb.model.clock import Clock
from tsdb.model.time_set import DEMO

LIFE_S_MAX = 0.6


def kill_chunker(log: Log, partitions: int, clock: Clock, *, kills: int, seed: int) -> None:
    """Abort so many chunkers, each at a random instant of its life; the last one goes on to the end."""
    rng = random.Random(seed)
    began_ms = clock.now_ms()
    with LateWriter(log, partitions, clock, DEMO.window_ms, seed):
        for _ in range(kills):
            with running(log, chunker_options(), clock, graceful=False) as chunker:
                wait_until(lambda chunker=chunker: bool(chunker.statuses()))  # type: ignore[misc]
                time.sleep(rng.random() * LIFE_S_MAX)  # The instant.
    with running(log, chunker_options(), clock) as chunker:
        wait_emitted(chunker, range(partitions), clock.now_ms())
    for partition in range(partitions):
        written = assert_uninterrupted(log, partition, DEMO)
        assert len(windows_in(written)) >= (clock.now_ms() - began_ms) // DEMO.window_ms - 3
