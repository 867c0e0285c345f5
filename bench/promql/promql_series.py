"""The series of bench/promql: an hour of two metrics and of an info metric, and the requests of remote write that bring
them.

Each instance has another phase, as scraped hosts have. No sample lies on a step or at the edge of a window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bench.gateway.ingest_bodies import RemoteWriteBodies
from bench.gateway.ingest_senders import OK, HttpSender
from bench.gateway.ingest_series import WorkloadRequest
from bench.workload import SERIES_PER_INSTANCE, Workload
from tsdb.model.labels import canonical_labels

COUNTER, GAUGE, INFO = "bench_requests_total", "bench_value", "bench_info"
POINTS = 240
STEP_MS = 15_000
GROUPS = 20
VERSIONS = 5
CONNECTIONS = 4
REQUEST_SERIES = 1_000
REQUEST_POINTS = 10


class PromqlSeries:
    """The series COUNTER and GAUGE, `series` of each, and INFO with one series an instance. The values of GAUGE are
    W(series).

    labels: canonical. values: float64 (all series, POINTS). times_ms: int64, of the same shape; a series has its last
    sample less than STEP_MS before end_ms.

    """

    def __init__(self, series: int, end_ms: int, *, seed: int = 1) -> None:
        instances = -(-series // SERIES_PER_INSTANCE)
        random = np.random.default_rng(seed)
        rates = random.integers(1, 5_000, (series, 1))
        # The values are far from 0, to which versions of Prometheus extrapolate differently.
        first = random.integers(10**8, 10**9, (series, 1))
        counters = first + np.cumsum(random.poisson(rates, (series, POINTS)), axis=1)
        self.labels = [
            *(_labels(COUNTER, number) for number in range(series)),
            *(_labels(GAUGE, number) for number in range(series)),
            *(_info(instance) for instance in range(instances)),
        ]
        self.values: NDArray[np.float64] = np.concatenate(
            (counters, Workload(series, 1, samples=POINTS).values, np.ones((instances, POINTS)))
        )
        numbers = np.arange(series) // SERIES_PER_INSTANCE
        phases = random.integers(0, STEP_MS // 1000, instances) * 1000 + 411
        phase_ms = phases[np.concatenate((numbers, numbers, np.arange(instances)))]
        self.times_ms = end_ms - STEP_MS * np.arange(POINTS - 1, -1, -1) - phase_ms[:, None]

    def send(self, address: str, request_points: int = REQUEST_POINTS) -> None:
        """Send all samples in the order of time. address: HOST:PORT/PATH. request_points: samples of a series in a
        request. Raises RuntimeError for a refusal.
        """
        asyncio.run(self._send(address, request_points))

    async def _send(self, address: str, request_points: int) -> None:
        sender, encode = HttpSender(address), RemoteWriteBodies(self.labels)
        await sender.open(CONNECTIONS)
        for first in range(0, POINTS, request_points):
            # Requests that are under way together share no series, so the samples of each series arrive in order.
            requests = self._requests(slice(first, first + request_points))
            await asyncio.gather(*(_send_all(sender, i, encode, requests) for i in range(CONNECTIONS)))
        await sender.close()

    def _requests(self, columns: slice) -> Iterator[WorkloadRequest]:
        for first in range(0, len(self.labels), REQUEST_SERIES):
            rows = np.arange(first, min(first + REQUEST_SERIES, len(self.labels)))
            times, values = self.times_ms[rows, columns], self.values[rows, columns]
            starts = np.arange(len(rows) + 1) * times.shape[1]
            yield WorkloadRequest((first, times.size), rows, starts, times.ravel(), values.ravel())


async def _send_all(
    sender: HttpSender, connection: int, encode: RemoteWriteBodies, requests: Iterator[WorkloadRequest]
) -> None:
    """Send the remaining requests. All connections take them from one iterator."""
    for request in requests:
        answer = await sender.send(connection, encode(request))
        if answer != OK:
            raise RuntimeError(f"samples were refused: {answer}")


def _labels(name: str, number: int) -> bytes:
    instance, mode = divmod(number, SERIES_PER_INSTANCE)
    return canonical_labels(
        {
            "__name__": name,
            "job": "bench",
            "instance": instance_name(instance),
            "mode": f"mode_{mode:02d}",
            "g": f"group_{mode % GROUPS:02d}",
            "cluster": "main",
        }
    )


def _info(instance: int) -> bytes:
    version = f"1.{instance % VERSIONS}"
    return canonical_labels({"__name__": INFO, "job": "bench", "instance": instance_name(instance), "ver": version})


def instance_name(instance: int) -> str:
    """Value of the label `instance`."""
    return f"host-{instance:05d}:9100"
