"""Parts of the backup drill: all roles as processes, samples that flow, and the answers of a querier as bytes."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from support.servers.deployments import TIMEOUT_S
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import Client, WriteBatch, connect
from tsdb.history.cassandra.session import open_cluster
from tsdb.history.interface import ChunkStore
from tsdb.history.open import open_history
from tsdb.history.settings import HistorySettings, Hosts
from tsdb.log.interface import METRICS
from tsdb.log.open import open_log
from tsdb.model.errors import TsdbError
from tsdb.model.labels import canonical_labels

ROLES = ("gateway", "store", "chunker", "loader", "querier")
EVERYTHING = 'm{job="drill"}'
PROMQL = (
    'm{job="drill"}',
    "sum by (instance) (rate(m[10s]))",
    "quantile(0.9, m)",
    "max_over_time(m[15s]) - m offset 5s",
)
SERIES = 40
EVERY_S = 0.5
ANSWER_WITHIN_S = 240.0


@dataclass(frozen=True)
class Answers:
    """Answers of one range: samples as bytes, and the HTTP answers of PROMQL."""

    raw: tuple[bytes, ...]
    promql: tuple[bytes, ...]


class FlowingSamples:
    """A thread that writes SERIES samples every EVERY_S, and remembers the acknowledged ones. A context manager."""

    def __init__(self, gateway: Role) -> None:
        self._gateway = gateway
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._errors: list[BaseException] = []
        self.acked: dict[tuple[bytes, int], float] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        if kind is None and self._errors:
            raise self._errors[0]

    def _run(self) -> None:
        try:
            with connect(self._gateway.grpc, timeout_s=TIMEOUT_S) as client:
                while not self._stopping.wait(EVERY_S):
                    self._write(client, time.time_ns() // 1_000_000)
        except BaseException as error:
            self._errors.append(error)

    def _write(self, client: Client, ts_ms: int) -> None:
        batch, sent = WriteBatch(), {}
        for number in range(SERIES):
            labels = {"__name__": "m", "job": "drill", "instance": f"i{number % 8}", "n": str(number)}
            value = (ts_ms * (number + 1) % 1_000_003) / 7.0
            batch.add(labels, ts_ms, value)
            sent[canonical_labels(labels), ts_ms] = value
        client.write(batch)
        self.acked.update(sent)


class Installation:
    """Five roles over a log and a history, of the demo time set. A context manager."""

    def __init__(self, scratch: Path, log: Sequence[str], history: str) -> None:
        self._stack = ExitStack()
        self._log = log
        self.history = history
        access, past = (*log, "--time-set", "demo"), ("--history", history)
        self.roles: dict[str, Role] = {}
        for name in ROLES:
            more = past if name in ("loader", "querier") else ()
            stores = ("--stores", self.roles["store"].grpc) if name == "querier" else ()
            self.roles[name] = Role(scratch, name, *access, *more, *stores)

    def __enter__(self) -> Self:
        for role in self.roles.values():
            self._stack.push(role)
            role.start(ready=False)
        for role in self.roles.values():
            role.wait_ready()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def wait_loaded(self, through_ms: int) -> None:
        """Wait until history is complete before that time."""
        with open_log(self._log[1], prefix=self._log[3]) as log, open_history(self.history) as store:
            topic_id, partitions = log.topic_id(METRICS), log.partitions(METRICS)
            wait_until(lambda: _loaded_ms(store, topic_id, partitions) >= through_ms, ANSWER_WITHIN_S)

    def wait_forgotten(self, before_ms: int) -> None:
        """Wait until the store's memory begins after that time, so that history answers for it."""
        with connect(self.roles["store"].grpc, timeout_s=TIMEOUT_S) as client:
            wait_until(
                lambda: min(state.coverage_start_ms for state in client.coverage()) >= before_ms,
                ANSWER_WITHIN_S,
            )

    def answers(self, start_ms: int, end_ms: int) -> Answers:
        """Answers of [start_ms, end_ms); waits while the querier refuses them."""
        found: list[Answers] = []

        def answered() -> bool:
            try:
                found.append(Answers(self.raw(start_ms, end_ms), self._promql(start_ms, end_ms)))
            except (TsdbError, urllib.error.HTTPError):
                return False
            return True

        wait_until(answered, ANSWER_WITHIN_S)
        return found[0]

    def raw(self, start_ms: int, end_ms: int) -> tuple[bytes, ...]:
        """Labels, times and bits of values of all series. Raises as a select does."""
        with connect(self.roles["querier"].grpc, timeout_s=TIMEOUT_S) as client:
            answer = client.select(EVERYTHING, start_ms, end_ms, encoding="raw")
        return b"\n".join(answer.canonical), answer.starts.tobytes(), answer.ts_ms.tobytes(), answer.values.tobytes()

    def samples(self, start_ms: int, end_ms: int) -> dict[tuple[bytes, int], float]:
        """All samples by series and time."""
        with connect(self.roles["querier"].grpc, timeout_s=TIMEOUT_S) as client:
            answer = client.select(EVERYTHING, start_ms, end_ms)
        return {
            (one.canonical, ts_ms): value
            for one in answer.series
            for ts_ms, value in zip(one.ts_ms.tolist(), one.values.tolist(), strict=True)
        }

    def _promql(self, start_ms: int, end_ms: int) -> tuple[bytes, ...]:
        return tuple(self._query_range(text, start_ms, end_ms) for text in PROMQL)

    def _query_range(self, text: str, start_ms: int, end_ms: int) -> bytes:
        # The first steps look back by 20 s at most.
        form = {"query": text, "start": (start_ms + 20_000) / 1000, "end": (end_ms - 1) / 1000, "step": "2"}
        url = f"http://{self.roles['querier'].http}/api/v1/query_range?{urllib.parse.urlencode(form)}&lookback_delta=5s"
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read())


def _loaded_ms(store: ChunkStore, topic_id: str, partitions: int) -> int:
    loaded = store.loaded(topic_id)
    return min(one.emitted_through_ms for one in loaded.values()) if len(loaded) == partitions else -1


def drop(history: str) -> None:
    """DROP KEYSPACE, without a snapshot."""
    hosts = Hosts.parse(history)
    cluster = open_cluster(hosts, HistorySettings())
    try:
        cluster.connect().execute(f"DROP KEYSPACE {hosts.keyspace}", timeout=120.0)
    finally:
        cluster.shutdown()
