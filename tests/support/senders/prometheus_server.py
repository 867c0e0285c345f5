"""A real Prometheus server without samples, to compare answers with."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.ports import Ports
from support.senders.prometheus import binary

STARTS_WITHIN_S = 60.0


@contextmanager
def prometheus_server(scratch: Path) -> Iterator[str]:
    """Starts the server and returns its address. It scrapes nothing."""
    config = scratch / "prometheus.yml"
    config.write_text("global: {}\n")
    ports = Ports(1)
    address = f"127.0.0.1:{ports.numbers[0]}"
    command = [
        binary("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={scratch / 'prometheus'}",
        f"--web.listen-address={address}",
        "--enable-feature=exemplar-storage",
    ]
    with (scratch / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_ready(address)
        yield address
    finally:
        process.kill()
        process.wait()
        ports.close()


def _wait_ready(address: str) -> None:
    give_up_at = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5):
                return
        except OSError:
            assert time.monotonic() < give_up_at, "Prometheus did not start"
            time.sleep(0.05)
