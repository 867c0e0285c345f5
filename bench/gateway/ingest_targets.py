"""Targets of bench/gateway/ingest.py: what is written to, as processes by role, with addresses for each protocol."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.gateway.sender_process import GRPC, REMOTE_WRITE
from bench.ground import PARTITIONS, make_topics
from bench.measure import rss_mib
from stack.kafka import KafkaCluster
from stack.ports import Ports
from tsdb.log.topics import LOG_APPEND_TIME

READY_WITHIN_S = 300.0
STOP_WITHIN_S = 60.0
STANDALONE, KAFKA, PROMETHEUS = "standalone", "kafka", "prometheus"
BROKER = "broker"
REMOTE_WRITE_PATH = "api/v1/write"
# Several connections bring the samples of one series in no strict order, which Prometheus refuses without a window.
PROMETHEUS_CONFIG = "storage:\n  tsdb:\n    out_of_order_time_window: 30m\n"


@dataclass(frozen=True, slots=True)
class IngestTarget:
    """addresses: HOST:PORT by protocol. pids: process ids by role. folder: the data, where this process can see it."""

    name: str
    addresses: dict[str, str]
    pids: dict[str, int]
    folder: Path | None = None

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of each role so far, its child processes included."""
        return {role: _cpu_of_tree(pid) for role, pid in self.pids.items()}

    def rss_mib(self) -> dict[str, float]:
        """Resident memory of each role."""
        return {role: rss_mib(pid) for role, pid in self.pids.items()}


def prometheus_binary(given: str | None = None) -> str | None:
    """Path of a Prometheus server, from PATH or beside this Python; None when it is not installed."""
    return given or shutil.which("prometheus") or shutil.which("prometheus", path=str(Path(sys.executable).parent))


@contextmanager
def standalone(flags: Sequence[str] = (), folder: Path | None = None) -> Iterator[IngestTarget]:
    """`tsdb standalone` with an empty folder, which outlives it when it is given."""
    with ExitStack() as stack:
        made = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-ingest-")))
        pid, grpc, http = stack.enter_context(_role("standalone", "--data-dir", str(made), *flags))
        yield IngestTarget(STANDALONE, _addresses(grpc, http), {"standalone": pid}, made)


@contextmanager
def kafka(flags: Sequence[str] = (), folder: Path | None = None) -> Iterator[IngestTarget]:
    """Gateway, store and one broker. flags: options of the gateway. folder: the broker's data, which outlives the
    broker."""
    with KafkaCluster(folder=folder) as cluster, ExitStack() as stack:
        url = f"kafka://{cluster.bootstrap}"
        make_topics(url, PARTITIONS, LOG_APPEND_TIME)
        gateway, grpc, http = stack.enter_context(_role("gateway", "--log", url, *flags))
        store, _, _ = stack.enter_context(_role("store", "--log", url))
        pids = {"gateway": gateway, "store": store, BROKER: cluster.pids[0]}
        yield IngestTarget(KAFKA, _addresses(grpc, http), pids, folder)


@contextmanager
def prometheus(
    binary: str, folder: Path | None = None, more_flags: Sequence[str] = (), more_config: str = ""
) -> Iterator[IngestTarget]:
    """The control: a Prometheus server that takes remote write. folder: see `standalone`. more_config: lines of its
    configuration.
    """
    with ExitStack() as stack, Ports(1) as ports:
        made = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-prometheus-")))
        address = f"127.0.0.1:{ports.numbers[0]}"
        config = made / "prometheus.yml"
        config.write_text(PROMETHEUS_CONFIG + more_config)
        flags = [f"--config.file={config}", f"--storage.tsdb.path={made}/data", f"--web.listen-address={address}"]
        with _process(
            [binary, *flags, *more_flags, "--web.enable-remote-write-receiver", "--log.level=warn"], address
        ) as pid:
            addresses = {REMOTE_WRITE: f"{address}/{REMOTE_WRITE_PATH}"}
            yield IngestTarget(PROMETHEUS, addresses, {"prometheus": pid}, made / "data")


def _addresses(grpc: str, http: str) -> dict[str, str]:
    return {GRPC: grpc, REMOTE_WRITE: f"{http}/{REMOTE_WRITE_PATH}"}


@contextmanager
def _role(name: str, *flags: str) -> Iterator[tuple[int, str, str]]:
    """Process id, gRPC and HTTP address of a ready role."""
    with Ports(2) as ports:
        grpc, http = (f"127.0.0.1:{number}" for number in ports.numbers)
        listen = ["--grpc", grpc, "--http", http, "--log-level", "warning"]
        with _process([sys.executable, "-m", "tsdb.cli.main", name, *flags, *listen], http) as pid:
            yield pid, grpc, http


@contextmanager
def _process(command: Sequence[str], http: str) -> Iterator[int]:
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        give_up_at = time.monotonic() + READY_WITHIN_S
        while not _ready(http):
            if child.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"{command[0]} is not ready; exit code {child.poll()}")
            time.sleep(0.1)
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _ready(http: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://{http}/-/ready", timeout=1) as answer:
        return bool(answer.status == 200)
    return False


def _cpu_of_tree(pid: int) -> float:
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)
