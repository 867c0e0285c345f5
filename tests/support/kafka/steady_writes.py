"""Steady writes: a fixed number of samples a second through a gateway, and a count of the refused ones."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import numpy as np

from support.servers.processes import Role
from tsdb.client import Client, WriteBatch, connect
from tsdb.model.labels import canonical_labels

WRITERS = 4
TICK_S = 0.1
REFUSALS = ("tsdb_ingest_refused_requests_total", "tsdb_ingest_refused_samples_total")


class SteadyWrites:
    """Threads that write `samples_s` samples a second, each series ten times a second. A context manager.

    A late writer sends without a pause until it is on time again. The values are random floats, which compress little.
    """

    def __init__(self, gateway: Role, samples_s: int) -> None:
        self._gateway = gateway
        self._series = round(samples_s * TICK_S / WRITERS)
        self._random = np.random.default_rng(1)
        self._stopping = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WRITERS)]
        self._began = 0.0
        self._written = [0] * WRITERS

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if kind is None and self._errors:
            raise self._errors[0]

    @property
    def written(self) -> int:
        """Number of samples answered OK."""
        return sum(self._written)

    @property
    def samples_s(self) -> float:
        """Samples answered OK a second, since the start."""
        return self.written / (time.monotonic() - self._began)

    def refused(self) -> dict[str, float]:
        """The gateway's counters of refused requests and samples that are not 0: by their reasons."""
        return {name: value for name, value in self._gateway.metrics().items() if name.startswith(REFUSALS) and value}

    def _run(self, number: int) -> None:
        sources = [{"__name__": "steady", "job": "steady", "instance": f"w{number}-{source}"} for source in range(50)]
        labels = [canonical_labels({**sources[row % 50], "n": str(row)}) for row in range(self._series)]
        values = self._random.random(self._series)
        due = time.monotonic()
        try:
            with connect(self._gateway.grpc, timeout_s=60.0) as client:
                while not self._stopping.wait(max(0.0, due - time.monotonic())):
                    self._write(client, labels, np.roll(values, self._written[number] % 997))
                    self._written[number] += self._series
                    due += TICK_S
        except BaseException as error:
            self._errors.append(error)

    def _write(self, client: Client, labels: list[bytes], values: np.ndarray) -> None:
        batch = WriteBatch()
        times = np.full(len(labels), time.time_ns() // 1_000_000, np.int64)
        batch.add_columns(labels, np.ones(len(labels), np.uint32), times, values)
        client.write(batch)
