"""A chunker killed repeatedly while samples flow: in the end `chunks` follows from the log, byte for byte."""

from __future__ import annotations

import random
import time

from support.data.late_writer import LateWriter
from support.scripts.chunker_process import SESSION_S, ChunkerProcess
from support.servers.chunkers import FastClock, assert_uninterrupted, chunker_options, running, wait_emitted, windows_in
from support.servers.logs import LogFactory, wait_until
from tsdb.log.interface import Log
from tsdb.log.settings import LogSettings
from tsdb.model.clock import Clock
from tsdb.model.time_set import DEMO

LIFE_S_MAX = 0.6
REBALANCED_WITHIN_S = 90.0  # A killed member keeps its partitions for a session.


def kill_process(logs: LogFactory, partitions: int, clock: FastClock, *, kills: int, seed: int) -> Log:
    """SIGKILL `kills` chunker processes, each at a random instant after it got partitions; then one runs to the end.

    Topics have CreateTime, so that time can run faster on a real broker too. Returns the log.
    """
    rng = random.Random(seed)
    log = logs.open(LogSettings(group_session_s=SESSION_S), clock)
    with LateWriter(log, partitions, clock, DEMO.window_ms, seed):
        for _ in range(kills):
            process = ChunkerProcess(logs.url, logs.prefix, clock)
            try:
                process.ready()
                time.sleep(rng.random() * LIFE_S_MAX)  # The kill comes at a random time.
            finally:
                process.kill()
    with running(log, chunker_options(), clock) as chunker:
        wait_emitted(chunker, range(partitions), clock.now_ms(), REBALANCED_WITHIN_S)
    for partition in range(partitions):
        assert len(windows_in(assert_uninterrupted(log, partition, DEMO))) >= 2
    return log


def kill_chunker(log: Log, partitions: int, clock: Clock, *, kills: int, seed: int) -> None:
    """Abort `kills` chunkers, each at a random instant of its life; the last one runs to the end."""
    rng = random.Random(seed)
    began_ms = clock.now_ms()
    with LateWriter(log, partitions, clock, DEMO.window_ms, seed):
        for _ in range(kills):
            with running(log, chunker_options(), clock, graceful=False) as chunker:
                wait_until(lambda chunker=chunker: bool(chunker.statuses()))  # type: ignore[misc]
                time.sleep(rng.random() * LIFE_S_MAX)  # The kill comes at a random time.
    with running(log, chunker_options(), clock) as chunker:
        through_ms = clock.now_ms()
        wait_emitted(chunker, range(partitions), through_ms)
    for partition in range(partitions):
        written = assert_uninterrupted(log, partition, DEMO)
        assert len(windows_in(written)) >= (through_ms - began_ms) // DEMO.window_ms - 1
