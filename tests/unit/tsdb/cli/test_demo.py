"""The demo reads figures that the processes have, and its page opens with its expressions."""

from __future__ import annotations

import re
import socket

from support.deploy_files import ROOT
from tsdb.cli.demo.standalone import free_addresses
from tsdb.cli.options.connection import DEFAULT_ADDRESS

METRIC = re.compile(r"""\.metric\(["'](\w+)["']""")


def test_every_metric_of_the_demo_is_documented() -> None:
    # The demo shows 0 for a metric that is not there.
    used = {name for file in (ROOT / "tsdb/cli/demo").glob("*.py") for name in METRIC.findall(file.read_text())}
    known = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    assert len(used) > 10
    assert used - known == set()


def test_the_demo_is_at_other_addresses_when_the_defaults_are_in_use() -> None:
    with socket.socket() as taken:
        host, _, port = DEFAULT_ADDRESS.rpartition(":")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((host, int(port)))
            taken.listen()
        except OSError:
            pass  # Another process has it, which is as good.
        assert DEFAULT_ADDRESS not in free_addresses()
