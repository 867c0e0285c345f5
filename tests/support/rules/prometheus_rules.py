"""A Prometheus server that evaluates rules and scrapes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.ports import Ports
from support.rules.evaluator import evaluator
from support.senders.prometheus import binary


@contextmanager
def prometheus_rules(folder: Path) -> Iterator[None]:
    """folder: has prometheus.yml. The server sends its last results when the block ends."""
    log = folder / "prometheus.log"
    with Ports(1) as ports, log.open("wb") as output:
        command = [
            binary("prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/prometheus",
            f"--web.listen-address=127.0.0.1:{ports.numbers[0]}",
            # It finds its Alertmanager 5 s after its start. An alert that fires before is sent at the next repetition.
            "--rules.alert.resend-delay=1s",
        ]
        with evaluator(command, output, log):
            yield
