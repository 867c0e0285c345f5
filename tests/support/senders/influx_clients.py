"""InfluxDB's own Python client as a sender: threads that write all the time, and a check of what a store answers.

A write returns once the gateway has answered 204; the client repeats it after 503 and after a broken connection.
"""

from __future__ import annotations

import random
import struct
import threading
import time
import uuid
from types import TracebackType
from typing import Self

from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.client.write.point import Point
from influxdb_client.client.write.retry import WritesRetry
from influxdb_client.client.write_api import SYNCHRONOUS

from support.servers.logs import wait_until
from tsdb.client import Client
from tsdb.model.labels import canonical_labels

THREADS = 4
LINES = 25  # A request.
SHOWN_WITHIN_S = 60.0
RETRY_S = 0.2

Samples = dict[tuple[bytes, int], bytes]  # The value as its 8 bytes, so that -0.0 is not 0.0.


class InfluxClients:
    """THREADS senders with one client each. A context manager: leaving it lets each finish its write."""

    def __init__(self, url: str, *, token: str, gzip: bool, seed: int) -> None:
        self._url, self._token, self._gzip = url, token, gzip
        self._job = f"influx-{uuid.uuid4().hex[:8]}"
        self._base_ms = time.time_ns() // 1_000_000
        self._stopping = threading.Event()
        self._written: list[Samples] = [{} for _ in range(THREADS)]
        self._running = [0] * THREADS
        self._broken: list[BaseException] = []
        self.requests = 0
        seeds = range(seed, seed + THREADS)
        self._threads = [
            threading.Thread(target=self._run, args=(number, random.Random(one))) for number, one in enumerate(seeds)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(90.0)
        if self._broken and error is None:
            raise self._broken[0]

    @property
    def in_flight(self) -> int:
        """Writes without an answer."""
        return sum(self._running)

    def wait_for_requests(self, count: int) -> None:
        """Wait until `count` more writes have succeeded."""
        goal = self.requests + count
        wait_until(lambda: self.requests >= goal or bool(self._broken), 120.0)
        if self._broken:
            raise self._broken[0]

    def judge(self, reader: Client) -> int:
        """Once stopped: a store shows each written sample bit for bit and no other. Returns their number."""
        want = {key: value for written in self._written for key, value in written.items()}
        wait_until(lambda: len(self._read(reader)) >= len(want), SHOWN_WITHIN_S)
        got = self._read(reader)
        lost = [key for key in want if got.get(key) != want[key]]
        assert not lost, f"{len(lost)} of {len(want)} samples are missing or differ, such as {lost[:3]}"
        assert got.keys() == want.keys(), "a sample that no client sent"
        return len(want)

    def _read(self, reader: Client) -> Samples:
        answer = reader.select(f'{{job="{self._job}"}}', self._base_ms - 86_400_000, self._base_ms + 1)
        return {
            (series.canonical, ts_ms): struct.pack("<d", value)
            for series in answer.series
            for ts_ms, value in zip(series.ts_ms.tolist(), series.values.tolist(), strict=True)
        }

    def _run(self, number: int, rng: random.Random) -> None:
        retries = WritesRetry(
            total=1000, retry_interval=RETRY_S, max_retry_delay=RETRY_S, exponential_base=1, allowed_methods=["POST"]
        )
        try:
            with InfluxDBClient(
                self._url, self._token, org="any", retries=retries, enable_gzip=self._gzip, timeout=30_000
            ) as client:
                api = client.write_api(write_options=SYNCHRONOUS)
                index = 0
                while not self._stopping.is_set():
                    points, samples = self._points(number, index, rng)
                    self._running[number] = 1
                    api.write("any", record=points)
                    self._running[number] = 0
                    self._written[number].update(samples)
                    self.requests += 1
                    index += LINES
        except BaseException as error:
            self._broken.append(error)

    def _points(self, thread: int, first: int, rng: random.Random) -> tuple[list[Point], Samples]:
        points: list[Point] = []
        samples: Samples = {}
        for index in range(first, first + LINES):
            ts_ms = self._base_ms - index
            tags = {"job": self._job, "instance": f"t{thread}", "core": str(index % 3), "a path": "C:\\x, y=z"}
            bits = rng.getrandbits(62)  # Finite: the client leaves out NaN and infinity.
            values = {
                "usage idle": struct.unpack("<d", struct.pack("<Q", bits))[0],
                "bytes": rng.getrandbits(63) - (1 << 62),
                "up": rng.random() < 0.5,
                "value": -0.0,
            }
            point = Point("cpu load").time(ts_ms * 1_000_000 + rng.randrange(1_000_000))
            for name, value in tags.items():
                point.tag(name, value)
            for name, value in values.items():
                point.field(name, value)
                labels = {"__name__": f"cpu_load_{name.replace(' ', '_')}", **tags, "a_path": tags["a path"]}
                del labels["a path"]
                samples[canonical_labels(labels), ts_ms] = struct.pack("<d", float(value))
            points.append(point.field("note", 'said "x=1, y=2"\nand went on \\'))
        return points, samples
