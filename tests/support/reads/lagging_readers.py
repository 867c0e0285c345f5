"""Drill of readers behind a quota: an answer without a warning has each sample acknowledged a second before it.

One thread writes a small sample all the time, another one noise for the quota to hold back. Readers ask a querier for
the last 20 s over HTTP and gRPC, and compare each answer with what was acknowledged.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from stack.kafka import KafkaCluster
from support.servers.processes import Role
from support.servers.quotas import release_readers, throttle_readers
from tsdb.client import TsdbError, WriteBatch, connect

OBJECTIVE_S = 1.0
WITHIN_S = 120.0
LAST_MS = 20_000
WRITE_EVERY_S = 0.05
REFUSED_AFTER_S = 2.0  # Behind the quota a refusal is an answer; with more patience few reads would fit into the drill.
READ_EVERY_S = 0.1
NOISE_SAMPLES = 4_000  # Incompressible bytes of each half second, which make some 60 KB/s.
SLOW_BYTES_PER_S = 12_000


@dataclass
class Found:
    """Answers of one phase. without_lag: warnings that state no lag above the objective. short: without a warning and
    without a sample that was acknowledged in time."""

    whole: int = 0
    warned: int = 0
    without_lag: list[str] = field(default_factory=list)
    refused: int = 0
    short: list[str] = field(default_factory=list)

    @property
    def answers(self) -> int:
        return self.whole + self.warned + self.refused + len(self.short)


class LagDrill:
    """Writes to a gateway from the begin of the block to its end."""

    def __init__(self, gateway: Role, querier: Role) -> None:
        self._gateway = gateway
        self._querier = querier
        self._name = f"lag_{uuid.uuid4().hex[:8]}"
        self._lock = threading.Lock()  # Guards _acknowledged.
        self._acknowledged: dict[int, float] = {}  # Sample time -> monotonic time of its OK.
        self._stopping = threading.Event()

    @contextmanager
    def writing(self) -> Iterator[None]:
        threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._write_noise)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join(60.0)

    def read_for(self, seconds: float, patience_s: float = 30.0, *, enough: Callable[[Found], bool]) -> Found:
        """Read for so long and until there is enough, HTTP and gRPC in turn. patience_s: how long a client sends a
        refused read again."""
        found, end_at, over_http = Found(), time.monotonic() + seconds, True
        while time.monotonic() < end_at or not enough(found):
            assert time.monotonic() < end_at + WITHIN_S, found
            with self._lock:
                acknowledged = dict(self._acknowledged)
            began, now_ms = time.monotonic(), time.time_ns() // 1_000_000
            needed = {
                ts_ms
                for ts_ms, ok_at in acknowledged.items()
                if ok_at < began - OBJECTIVE_S and now_ms - LAST_MS < ts_ms <= now_ms
            }
            try:
                times, warnings = self._over_http(now_ms) if over_http else self._over_grpc(now_ms, patience_s)
            except (TsdbError, urllib.error.HTTPError):
                found.refused += 1
            else:
                missing = needed - times
                if warnings:
                    found.warned += 1
                    found.without_lag += [warning for warning in warnings if not _states_a_lag(warning)]
                elif missing:
                    found.short.append(f"{'HTTP' if over_http else 'gRPC'} lacks {len(missing)} of {len(needed)}")
                else:
                    found.whole += 1
            over_http = not over_http
            time.sleep(READ_EVERY_S)  # Pause between two reads. No claim depends on it.
        return found

    def _over_http(self, now_ms: int) -> tuple[set[int], list[str]]:
        asked = urllib.parse.urlencode({"query": f"{self._name}[{LAST_MS}ms]", "time": now_ms / 1000})
        with urllib.request.urlopen(f"http://{self._querier.http}/api/v1/query?{asked}", timeout=30) as answer:
            got = json.loads(answer.read())
        values = [value for series in got["data"]["result"] for value in series["values"]]
        return {round(float(at) * 1000) for at, _ in values}, got.get("warnings", [])

    def _over_grpc(self, now_ms: int, patience_s: float) -> tuple[set[int], list[str]]:
        with connect(self._querier.grpc, timeout_s=patience_s) as client:
            got = client.select(self._name, now_ms - LAST_MS + 1, now_ms + 1)
        return set(got.ts_ms.tolist()), list(got.warnings)

    def _write(self) -> None:
        with connect(self._gateway.grpc, timeout_s=30.0) as client:
            while not self._stopping.wait(WRITE_EVERY_S):
                ts_ms = time.time_ns() // 1_000_000
                batch = WriteBatch()
                batch.add({"__name__": self._name, "job": "lag", "instance": "i"}, [ts_ms], [1.0])
                client.write(batch)
                with self._lock:
                    self._acknowledged[ts_ms] = time.monotonic()

    def _write_noise(self) -> None:
        random = np.random.default_rng(7)
        with connect(self._gateway.grpc, timeout_s=30.0) as client:
            while not self._stopping.wait(0.5):
                end_ms = time.time_ns() // 1_000_000
                batch = WriteBatch()
                # These series have the same source, so they are in the same partition.
                labels = {"__name__": "noise", "job": "lag", "instance": "i"}
                batch.add(labels, end_ms - NOISE_SAMPLES + np.arange(NOISE_SAMPLES), random.random(NOISE_SAMPLES))
                client.write(batch)


def _states_a_lag(warning: str) -> bool:
    stated = re.search(r"is behind the log: .*lag (unknown|(\d+) ms)", warning)
    return stated is not None and (stated[2] is None or int(stated[2]) > OBJECTIVE_S * 1000)


def lag_is_stated(cluster: KafkaCluster, gateway: Role, querier: Role, *, quiet_s: float, lagging_s: float) -> None:
    """No warning without a lag, and no answer that is silently short behind a quota."""
    drill = LagDrill(gateway, querier)
    with drill.writing():
        drill.read_for(3.0, enough=lambda found: found.whole > 0)
        quiet = drill.read_for(quiet_s, enough=lambda found: found.whole > quiet_s)
        throttle_readers(cluster, SLOW_BYTES_PER_S)
        try:
            lagging = drill.read_for(
                lagging_s, REFUSED_AFTER_S, enough=lambda found: found.warned > 0 and found.answers > lagging_s
            )
        finally:
            release_readers(cluster)
    print(f"quiet: {quiet}; behind the quota: {lagging}")
    assert not quiet.short
    assert not lagging.short
    # A paused machine lags too, and reports it.
    assert not quiet.without_lag + lagging.without_lag, "a warning without a lag"
