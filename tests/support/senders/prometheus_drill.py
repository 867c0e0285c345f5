"""The drill of a real Prometheus as the sender: what it sent is what a store answers, whatever happened meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from support.data.column_cases import STALE_BITS
from support.senders.prometheus import Agent, Recorder, Samples, agent, node_exporter
from support.servers.deployments import Deployment
from support.servers.logs import wait_until
from tsdb.log.metadata import read_metadata
from tsdb.log.open import open_log
from tsdb.model.errors import Unavailable
from tsdb.model.labels import canonical_labels

MINUTE_MS = 60_000
DRAINED_WITHIN_S = 60.0
# OpenMetrics names the family of a counter without _total.
DESCRIBED = (
    ("node_load1", "kind", "gauge"),
    ("node_cpu_seconds_total", "kind", "counter"),
    ("tsdb_http_requests", "help", "Answered requests of the ops HTTP server."),
)
UP = b"__name__\xffup\xff"


@dataclass(frozen=True)
class Sending:
    """A running agent; `wait_for_scrapes` waits until the recorder has further ones of the node exporter."""

    agent: Agent
    recorder: Recorder
    deployment: Deployment

    def wait_for_scrapes(self, more: int, within_s: float = DRAINED_WITHIN_S) -> None:
        last = max(self.recorder.times("node_load1"), default=0)

        def scraped() -> bool:
            return sum(ts > last for ts in self.recorder.times("node_load1")) >= more

        wait_until(scraped, within_s, describe=lambda: f"{self.recorder.times('node_load1')}")

    def drain(self) -> None:
        """End the scrapes and wait until the recorder and a store have each series to its last sample."""
        since_ms = time.time_ns() // 1_000_000
        self.agent.stop_scraping()
        wait_until(lambda: have_ended(self.recorder.samples(), since_ms), DRAINED_WITHIN_S)
        sent = self.recorder.samples()
        newest = {labels: max(values) for labels, values in sent.items()}
        self.deployment.store.wait_ready()

        def drained() -> bool:
            got = self._read()
            return all(max(got.get(labels, {}), default=0) >= last for labels, last in newest.items())

        wait_until(drained, DRAINED_WITHIN_S)

    def kill_gateway(self) -> None:
        """Kill the agent, wait for a scrape without it, and start it again."""
        self.deployment.gateway.kill()
        self.wait_for_scrapes(1)
        self.deployment.gateway.start()

    def restart_agent(self) -> None:
        """Once its queues are empty: an agent that stops with a backlog in its files never sends it."""
        self.drain()
        self.agent.stop()
        self.agent.start()

    def check(self) -> int:
        """End the agent and compare. Returns the number of samples."""
        self.wait_for_scrapes(2)
        self.drain()
        self.agent.stop()
        sent = self.recorder.samples()
        self.deployment.store.wait_ready()
        wait_until(lambda: count(self._read()) >= count(sent), DRAINED_WITHIN_S)
        got = self._read()
        assert got.keys() == sent.keys(), sorted(got.keys() ^ sent.keys())[:5]
        for labels, values in sent.items():
            assert got[labels] == values, labels
        return count(sent)

    def wait_for_metadata(self, url: str, prefix: str = "") -> None:
        """Wait until the topic has the metadata of all targets: the agent must repeat requests that failed in an outage
        of the log.

        A broker that has just come back may have no controller yet; its log counts as one without metadata.
        """

        def described() -> bool:
            try:
                with open_log(url, prefix=prefix) as log:
                    families = read_metadata(log)
            except Unavailable:
                return False
            return all(name in families and getattr(families[name], field) == text for name, field, text in DESCRIBED)

        wait_until(described, DRAINED_WITHIN_S)

    def _read(self, selector: str = '{job=~".+"}') -> Samples:
        now_ms = time.time_ns() // 1_000_000
        found: Samples = {}
        with self.deployment.reader() as reader:
            everything = reader.select(selector, now_ms - 30 * MINUTE_MS, now_ms + 5 * MINUTE_MS)
            for labels, ts_ms, values in everything:
                bits = np.ascontiguousarray(values).view(np.int64).tolist()
                found[canonical_labels(labels)] = dict(zip(ts_ms.tolist(), bits, strict=True))
        return found


def have_ended(samples: Samples, since_ms: int) -> bool:
    """Whether every series ends with a stale marker, and `up` of each job with one that is not older than since_ms."""
    ups = [values for labels, values in samples.items() if labels.startswith(UP)]
    return all(max(values) >= since_ms for values in ups) and all(
        values[max(values)] == STALE_BITS for values in samples.values()
    )


def count(samples: Samples) -> int:
    """Samples of all series."""
    return sum(map(len, samples.values()))


@contextmanager
def sending(folder: Path, deployment: Deployment) -> Iterator[Sending]:
    """An agent that scrapes the gateway and a node exporter, and sends to the gateway and to a recorder."""
    with node_exporter() as node, Recorder() as recorder:
        gateway = deployment.gateway.http
        jobs, targets = {"tsdb": gateway, "node": node}, {"tsdb": gateway, "recorder": recorder.address}
        with agent(folder, jobs, targets) as running:
            sender = Sending(running, recorder, deployment)
            sender.wait_for_scrapes(2)
            yield sender
