"""A query of a user between source and sink, killed with SIGKILL at any point, while samples flow.

The guarantee under attack: every sample of the log reaches the query, and every answer is written, whatever was killed;
a repeated batch changes no answer.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from spark_backfill.worker_log import close_worker_log
from support.servers.logs import LogFactory, wait_until
from support.servers.node import Gateway, label_set
from support.spark.copy_process import COPY, ORIGINAL
from support.spark.pipeline_process import DriverProcess
from support.spark.sample_streams import SampleStream, make_log
from support.spark.spark import places
from tsdb.log.interface import Log
from tsdb.model.clock import SystemClock

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_800)]

KILLS = 4
SEED = 7
SERIES = [label_set(number) for number in range(40)]
WITHIN_S = 240.0


class Samples:
    """Written by a thread, two requests a second, until the end of the block."""

    def __init__(self, log: Log) -> None:
        self._gateway = Gateway(log)
        self.requests = 0

    @contextmanager
    def flowing(self) -> Iterator[None]:
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.5):
                now_ms = SystemClock().now_ms()
                self._gateway.write(
                    SERIES, np.full(len(SERIES), now_ms), np.arange(len(SERIES)) + 1_000.0 * self.requests
                )
                self.requests += 1

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


class Answers:
    """The value of the highest order of each series and time of a metric, without the metric name."""

    def __init__(self, logs: LogFactory, name: str) -> None:
        self._stream = SampleStream(places(logs), start="earliest", selector=name)
        self._found: dict[tuple[tuple[tuple[str, str], ...], int], int] = {}
        self.rows = 0

    def now(self) -> dict[tuple[tuple[tuple[str, str], ...], int], int]:
        """The answers at the present end of the log."""
        # One batch: while samples flow, a loop to the end would not end.
        for labels, ts_ms, bits in self._stream.batch() or []:
            self._found[tuple(pair for pair in labels if pair[0] != "__name__"), ts_ms] = bits
            self.rows += 1
        return self._found


def test_every_sample_is_copied_over_kills_of_the_driver(log_factory: LogFactory, tmp_path: Path) -> None:
    log = make_log(log_factory)
    samples, rng = Samples(log), random.Random(SEED)
    originals, copies = Answers(log_factory, ORIGINAL), Answers(log_factory, COPY)
    checkpoint = str(tmp_path / "checkpoint")

    def begin() -> DriverProcess:
        return DriverProcess(tmp_path, "support.spark.copy_process", log_factory.url, log_factory.prefix, checkpoint)

    def copied_past(count: int) -> bool:
        return len(copies.now()) > count

    print(f"seed {SEED}")
    with ExitStack() as stack:
        stack.callback(close_worker_log)
        with samples.flowing():
            for kill in range(KILLS):
                process, before = begin(), len(copies.now())
                stack.callback(process.kill)
                wait_until(partial(copied_past, before), WITHIN_S)
                threading.Event().wait(rng.uniform(0.0, 2.0))  # Any point of a batch.
                assert process.running
                process.kill()
                print(f"kill {kill}: {samples.requests * len(SERIES)} samples, {len(copies.now())} copies")
        stack.callback(begin().kill)
        wait_until(partial(copied_past, samples.requests * len(SERIES) - 1), WITHIN_S)
        assert len(originals.now()) == samples.requests * len(SERIES)
        assert copies.now() == originals.now()
        print(f"{len(originals.now())} samples, {copies.rows} rows of copies")
