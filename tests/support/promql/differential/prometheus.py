"""A Prometheus server that has the samples of a dataset, received by remote write."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from stack.ports import Ports
from support.promql.differential.dataset import StoredSamples
from support.senders.go_senders import GoSender
from support.senders.remote_write import request_1, snappy

READY_WITHIN_S = 60.0
ANSWER_WITHIN_S = 30.0
# Its promql package is what this store's answers follow.
UPSTREAM = GoSender(
    "prometheus",
    "v0.315.0",
    "github.com/prometheus/prometheus/cmd/prometheus",
    "remove_all_sd",
    module="github.com/prometheus/prometheus",
)
UPSTREAM_VERSION = (3, 15)
# Version 2 only warns of features that it does not know.
FEATURES = ("promql-experimental-functions", "promql-extended-range-selectors", "promql-binop-fill-modifiers")
REMOTE_WRITE = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


@contextmanager
def prometheus(
    program: Path | str, folder: Path, series: Sequence[StoredSamples], features: Sequence[str] = FEATURES
) -> Iterator[str]:
    """The address of a server with these samples."""
    config, log = folder / "prometheus.yml", folder / "prometheus.log"
    config.write_text("{}\n")
    with Ports(1) as ports, log.open("wb") as output:
        address = f"127.0.0.1:{ports.numbers[0]}"
        command = [
            str(program),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder}/data",
            "--storage.tsdb.retention.time=100y",  # The samples are those of a day in 2023.
            f"--web.listen-address={address}",
            "--web.enable-remote-write-receiver",
            f"--enable-feature={','.join(features)}",
        ]
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _wait_ready(process, address, log)
            write(address, series)
            yield address
        finally:
            process.kill()
            process.wait()


def version_of(address: str) -> tuple[int, int]:
    """Major and minor version of a server. The build of UPSTREAM does not know its version."""
    with closing(http.client.HTTPConnection(address, timeout=ANSWER_WITHIN_S)) as connection:
        connection.request("GET", "/api/v1/status/buildinfo")
        text = json.loads(connection.getresponse().read())["data"]["version"]
    if not text:
        return UPSTREAM_VERSION
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def write(address: str, series: Sequence[StoredSamples]) -> None:
    """Send all samples in one request of remote write. Prometheus wants those of a series in the order of time."""
    body = snappy(request_1((dict(one.labels), one.samples) for one in series))
    with closing(http.client.HTTPConnection(address, timeout=ANSWER_WITHIN_S)) as connection:
        connection.request("POST", "/api/v1/write", body, REMOTE_WRITE)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status < 300, f"{answer.status}: {text}"


def _wait_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    give_up_at = time.monotonic() + READY_WITHIN_S
    while not _is_ready(address):
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < give_up_at, log.read_text()[-3000:]
        time.sleep(0.05)


def _is_ready(address: str) -> bool:
    try:
        with closing(http.client.HTTPConnection(address, timeout=1.0)) as connection:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == 200
    except OSError:
        return False
