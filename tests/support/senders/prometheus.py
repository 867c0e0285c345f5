"""A real Prometheus in agent mode that sends to a gateway and to a recorder, and a node exporter that it scrapes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import cramjam
import numpy as np

from stack.ports import Ports
from support.senders.post_server import PostServer
from support.senders.remote_write import ONE
from tsdb.model.labels import canonical_labels

Samples = dict[bytes, dict[int, int]]  # Canonical labels -> ts_ms -> bits of the value.

CONFIG = """
global: {{scrape_interval: {scrape_s}s, scrape_timeout: {scrape_s}s}}
scrape_configs:
{jobs}
remote_write:
{targets}
"""
JOB = "- job_name: {name}\n  file_sd_configs: [{{files: ['{targets}']}}]"
TARGET = """- url: http://{address}/api/v1/write
  name: {name}
  metadata_config: {{send_interval: 1s}}
  queue_config: {{batch_send_deadline: 500ms, min_backoff: 50ms, max_backoff: 500ms, min_shards: {shards},
    max_shards: {shards_max}, retry_on_http_429: true}}"""


def binary(name: str) -> str:
    """Path of a program of Debian's packages."""
    found = shutil.which(name) or str(Path(sys.executable).parent / name)
    assert Path(found).is_file(), f"{name} is missing: `make programs` installs it"
    return found


class Recorder(PostServer):
    """A receiver that keeps all it gets: the record of what the sender sends."""

    def __init__(self) -> None:
        super().__init__(lambda body: self._take(bytes(cramjam.snappy.decompress_raw(body))), 204)
        self._lock = threading.Lock()
        self._samples: Samples = {}

    def samples(self) -> Samples:
        """A copy of all samples so far."""
        with self._lock:
            return {labels: dict(values) for labels, values in self._samples.items()}

    def times(self, name: str) -> list[int]:
        """Times of the samples of a metric, over all its series."""
        wanted = f"__name__\xff{name}\xff".encode("latin-1")
        return sorted(ts for labels, values in self.samples().items() if labels.startswith(wanted) for ts in values)

    def _take(self, data: bytes) -> None:
        request = ONE["WriteRequest"].FromString(data)
        with self._lock:
            for series in request.timeseries:
                labels = canonical_labels((one.name.decode(), one.value.decode()) for one in series.labels)
                values = self._samples.setdefault(labels, {})
                for sample in series.samples:
                    values[sample.timestamp] = int(np.float64(sample.value).view(np.int64))


class Agent:
    """Prometheus in agent mode; it can be started again over its files.

    `stop` lets its queues drain, but what a queue has not read yet from the files it never sends, and each receiver
    has its own queue. So `stop_scraping` comes first: then every series ends with a stale marker.
    """

    def __init__(
        self, folder: Path, jobs: Mapping[str, str], targets: Mapping[str, str], port: int, scrape_s: int, shards: int
    ) -> None:
        self._folder = folder
        self._jobs = jobs
        many = {"shards": shards, "shards_max": max(shards, 200) if shards > 1 else 1}
        config = CONFIG.format(
            scrape_s=scrape_s,
            jobs="\n".join(JOB.format(name=name, targets=self._targets_of(name)) for name in jobs),
            targets="\n".join(TARGET.format(name=name, address=address, **many) for name, address in targets.items()),
        )
        (folder / "prometheus.yml").write_text(config)
        self._command = [
            binary("prometheus"),
            "--enable-feature=agent",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.agent.path={folder}/agent",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        for name, address in self._jobs.items():
            self._set_targets(name, [address])
        with (self._folder / "prometheus.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def stop_scraping(self) -> None:
        """Take all targets away; two scrapes later Prometheus writes a stale marker to each of their series."""
        for name in self._jobs:
            self._set_targets(name, [])

    def stop(self) -> None:
        """SIGTERM: the agent sends the rest of its queues, for a minute at most."""
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(90.0) == 0, (self._folder / "prometheus.log").read_text()[-3000:]

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()

    def _targets_of(self, job: str) -> Path:
        return self._folder / f"{job}.targets.json"

    def _set_targets(self, job: str, addresses: Sequence[str]) -> None:
        file = self._targets_of(job)
        new = file.with_suffix(".new")
        new.write_text(json.dumps([{"targets": list(addresses)}] if addresses else []))
        new.replace(file)


@contextmanager
def node_exporter() -> Iterator[str]:
    """The address of a node exporter with a few collectors, so that a scrape is cheap."""
    with Ports(1) as ports:
        address = f"127.0.0.1:{ports.numbers[0]}"
        collectors = [f"--collector.{name}" for name in ("cpu", "meminfo", "netdev", "loadavg", "vmstat")]
        command: Sequence[str] = [
            binary("prometheus-node-exporter"),
            f"--web.listen-address={address}",
            "--collector.disable-defaults",
            *collectors,
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield address
        finally:
            process.kill()
            process.wait()


@contextmanager
def agent(
    folder: Path, jobs: Mapping[str, str], targets: Mapping[str, str], *, scrape_s: int = 1, shards: int = 2
) -> Iterator[Agent]:
    """A started agent. jobs: name -> scraped address; targets: name -> address of a receiver. shards: least number of
    shards. With one shard all targets share a queue.
    """
    with Ports(1) as ports:
        made = Agent(folder, jobs, targets, ports.numbers[0], scrape_s, shards)
        made.start()
        try:
            yield made
        finally:
            made.kill()
