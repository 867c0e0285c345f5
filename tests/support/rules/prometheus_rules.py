"""A Prometheus server that evaluates rules and scrapes nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.ports import Ports
from support.senders.prometheus import binary

STOPS_WITHIN_S = 60.0


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
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield
            process.terminate()
            assert process.wait(STOPS_WITHIN_S) == 0
        except BaseException as error:
            error.add_note(log.read_text()[-4000:])
            raise
        finally:
            process.kill()
            process.wait()
