"""Steady reads of several kinds, each by the client that users have, with that client's own retries and no others.

| kind | client | its retries |
|---|---|---|
| raw | `tsdb.client`, `select` | errors that may pass, from 50 ms to 2 s apart, within the timeout |
| fresh | `tsdb.client`, `write` and `select` with `after` | the same |
| promql | `tsdb.client`, `query` | the same |
| http | prometheus-api-client, with its defaults | up to 3, for a lost connection and 408, 429, 500 to 504 |
| http-once | urllib, a connection for each query | none |
"""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
from prometheus_api_client import PrometheusConnect

from support.servers.logs import wait_until
from tsdb.client import Client, ReadOptions, WriteBatch, connect

SERIES, POINTS = 200, 60
SAMPLES = SERIES * POINTS
SLOW_S = 3.0
READ_WITHIN_S = 30.0  # The default of the client.
STOP_WITHIN_S = 60.0
QUERY = f"sum(count_over_time(known[{POINTS}s]))"
FRESH_READS_BACK = 20  # Newest own writes that a fresh read has to show.


@dataclass(frozen=True, slots=True)
class Known:
    """Samples that no write changes: SERIES series, each with a sample a second, up to end_ms."""

    end_ms: int

    @property
    def start_ms(self) -> int:
        return self.end_ms - (POINTS - 1) * 1000

    def write(self, client: Client) -> None:
        ts_ms = np.arange(self.start_ms, self.end_ms + 1, 1000)
        batch = WriteBatch()
        for number in range(SERIES):
            labels = {"__name__": "known", "job": "rollout", "instance": f"i{number % 40}", "n": str(number)}
            batch.add(labels, ts_ms, np.arange(POINTS) + number)
        client.write(batch)


Read = Callable[[], None]
"""Execute one read and check its answer. Raises for an error and for an answer that differs."""


@dataclass(slots=True)
class Outcomes:
    """Results of one kind of read. failed, slow: the time, in UTC as in the logs of pods, and the reason or the
    duration.

    slowest_s: the longest duration of the answered ones.
    """

    answered: int = 0
    failed: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


class Reads:
    """A thread for each kind of read. A context manager: leaving it stops them. rest_s: the pause of a thread between
    reads.
    """

    def __init__(self, querier: str, querier_http: str, gateway: str, known: Known, *, rest_s: float) -> None:
        self._known = known
        self._rest_s = rest_s
        self._querier, self._http, self._gateway = querier, querier_http, gateway
        self.outcomes = {name: Outcomes() for name in ("raw", "fresh", "promql", "http", "http-once")}
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(self._raw, "raw")),
            threading.Thread(target=self._run, args=(self._fresh, "fresh")),
            threading.Thread(target=self._run, args=(self._promql, "promql")),
            threading.Thread(target=self._run, args=(self._prometheus_api, "http")),
            threading.Thread(target=self._run, args=(self._urllib, "http-once")),
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
            thread.join(STOP_WITHIN_S)
            assert not thread.is_alive()

    @property
    def failed(self) -> list[str]:
        return [f"{kind} {text}" for kind, outcome in self.outcomes.items() for text in outcome.failed]

    def wait_for_answers(self, count: int, within_s: float = 120.0) -> None:
        """Wait until `count` more reads of each kind were answered."""
        goals = {kind: outcome.answered + count for kind, outcome in self.outcomes.items()}
        wait_until(
            lambda: all(self.outcomes[kind].answered >= goal for kind, goal in goals.items()),
            within_s,
            describe=lambda: self.failed[:3],
        )

    def _run(self, opened: Callable[[], Iterator[Read]], kind: str) -> None:
        outcome = self.outcomes[kind]
        with contextmanager(opened)() as read:
            while not self._stopping.wait(self._rest_s):
                begin, at = time.monotonic(), time.strftime("%H:%M:%S", time.gmtime())
                try:
                    read()
                except Exception as error:  # Every kind of failure counts.
                    outcome.failed.append(f"at {at}: {type(error).__name__}: {error}")
                else:
                    seconds = time.monotonic() - begin
                    outcome.answered += 1
                    outcome.slowest_s = max(outcome.slowest_s, seconds)
                    if seconds > SLOW_S:
                        outcome.slow.append(f"at {at}: {seconds:.1f} s")

    def _raw(self) -> Iterator[Read]:
        def read() -> None:
            found = client.select('known{job="rollout"}', self._known.start_ms, self._known.end_ms + 1).samples
            assert found == SAMPLES, f"{found} samples, want {SAMPLES}"

        with connect(self._querier) as client:
            yield read

    def _fresh(self) -> Iterator[Read]:
        newest: list[int] = []

        def read() -> None:
            batch, now_ms = WriteBatch(), time.time_ns() // 1_000_000
            batch.add({"__name__": "fresh", "job": "rollout"}, now_ms, float(now_ms))
            tokens = writer.write(batch).tokens
            newest.append(now_ms)
            del newest[:-FRESH_READS_BACK]
            answer = reader.select("fresh", newest[0], now_ms + 1, options=ReadOptions(after=tokens))
            (series,) = answer.series
            missing = set(newest) - set(series.ts_ms.tolist())
            assert not missing, f"{len(missing)} samples written before the read are not in it"

        with connect(self._gateway) as writer, connect(self._querier) as reader:
            yield read

    def _promql(self) -> Iterator[Read]:
        def read() -> None:
            _check(client.query(QUERY, self._known.end_ms).values.tolist())

        with connect(self._querier) as client:
            yield read

    def _prometheus_api(self) -> Iterator[Read]:
        client = PrometheusConnect(f"http://{self._http}")

        def read() -> None:
            found = client.custom_query(QUERY, params={"time": str(self._known.end_ms / 1000)})
            _check([float(one["value"][1]) for one in found])

        yield read

    def _urllib(self) -> Iterator[Read]:
        query = urllib.parse.urlencode({"query": QUERY, "time": str(self._known.end_ms / 1000)})

        def read() -> None:
            with urllib.request.urlopen(f"http://{self._http}/api/v1/query?{query}", timeout=READ_WITHIN_S) as answer:
                result = json.loads(answer.read())["data"]["result"]
            _check([float(one["value"][1]) for one in result])

        yield read


def _check(values: list[float]) -> None:
    assert values == [float(SAMPLES)], f"{values}, want one value, {SAMPLES}"
