"""The drill of engines that hand the chunk stage over while a gateway writes: what it accepted is in `chunks`."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from spark_backfill.places import Places
from support.data.late_storm import Again
from support.servers.chunkers import assert_uninterrupted, chunker_options, committed, running
from support.servers.logs import wait_until
from support.servers.node import Gateway, label_set
from support.spark.pipelines import pipeline_options, run_until
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.codec.chunk.key import ChunkKey, decode_key
from tsdb.history.merge import merge
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.model.labels import series_id
from tsdb.model.time_set import DEMO

LABELS = [label_set(number) for number in range(24)]  # Eight instances, so all partitions have some.
WINDOW_WITHIN_S = 240.0


class LiveSamples:
    """A gateway that receives samples all the time: samples of the present, and each time some of up to three windows
    ago.
    """

    def __init__(self, log: Log, clock: Clock, seed: int) -> None:
        self._gateway = Gateway(log, DEMO, clock)
        self._clock = clock
        self._rng = random.Random(seed)
        self._ids = [series_id(labels) for labels in LABELS]
        self.accepted: dict[tuple[int, int], int] = {}
        self.sent: dict[tuple[int, int], int] = {}
        self.last_ms = 0

    def write(self) -> None:
        """One request; what was accepted is noted."""
        now_ms = self._clock.now_ms()
        times = np.full(len(LABELS), now_ms)
        late = self._rng.sample(range(len(LABELS)), 4)
        times[late] -= [self._rng.randrange(3 * DEMO.window_ms) for _ in late]
        values = np.array([self._rng.random() for _ in LABELS])
        keys = zip(self._ids, times.tolist(), strict=True)
        samples = dict(zip(keys, values.view("u8").tolist(), strict=True))
        self.sent |= samples
        self.last_ms = now_ms
        with contextlib.suppress(Unavailable):  # A failed write may be in the log or not.
            self._gateway.write(LABELS, times, values)
            self.accepted |= samples


def hand_over(spark: SparkSession, log: Log, places: Places, clock: Clock, checkpoint: Path, *, rounds: int) -> None:
    """Pipeline and chunker in turn, each stopped in whatever it does once it has emitted a window that was open when it
    came; then the writing ends, and a pipeline goes on until everything is emitted."""
    partitions = range(log.partitions(METRICS))
    live = LiveSamples(log, clock, seed=7)
    live.write()
    options = pipeline_options(log, places, checkpoint, trigger_s=0.2)

    def emitted_ms() -> int:
        return min(committed(log, number).emitted_through_ms for number in partitions)

    with Again(live.write, every_s=0.05):
        for _ in range(rounds):
            begun_ms = clock.now_ms()
            run_until(spark, log, options, clock, lambda: emitted_ms() > begun_ms)  # noqa: B023  # within this round
            begun_ms = clock.now_ms()
            with running(log, chunker_options(), clock, graceful=False):
                wait_until(lambda: emitted_ms() > begun_ms, WINDOW_WITHIN_S)  # noqa: B023  # within this round
    # Idle partitions are ticked until the last window and the last late minute have ended.
    high = {number: marks.high for number, marks in log.watermarks(METRICS, partitions).items()}

    def all_done() -> bool:
        done = [committed(log, number) for number in partitions]
        return all(
            one.emitted_through_ms > live.last_ms and one.position >= high[number] for number, one in enumerate(done)
        )

    run_until(spark, log, options, clock, all_done)
    assert live.accepted.items() <= _found(log).items() <= live.sent.items()


def _found(log: Log) -> dict[tuple[int, int], int]:
    """All samples in `chunks`, which is what an uninterrupted stage makes of the log."""
    windows: dict[tuple[int, int], list[bytes]] = {}
    for number in range(log.partitions(METRICS)):
        for key, value in assert_uninterrupted(log, number, DEMO):
            decoded = decode_key(key)
            if isinstance(decoded, ChunkKey):
                windows.setdefault((decoded.pack_id, decoded.window_start_ms), []).append(value)
    found: dict[tuple[int, int], int] = {}
    for values in windows.values():
        fragment = merge([decode_chunk(value) for value in values])
        series = np.repeat(fragment.series_id, np.diff(fragment.sample_start)).tolist()
        keys = zip(series, fragment.ts_ms.tolist(), strict=True)
        found |= dict(zip(keys, fragment.value.view("u8").tolist(), strict=True))
    return found
