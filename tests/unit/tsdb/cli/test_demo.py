"""The demo reads figures that the processes have, and its page opens with its expressions."""

from __future__ import annotations

import io
import re
import socket
from pathlib import Path

import pytest
from rich.console import Console

from support.deploy_files import ROOT
from tsdb.cli.demo import spark
from tsdb.cli.demo.standalone import free_addresses
from tsdb.cli.options.connection import DEFAULT_ADDRESS
from tsdb.model.errors import ConfigMismatch

METRIC = re.compile(r"""\.metric\(["'](\w+)["']""")


def test_every_metric_of_the_demo_is_documented() -> None:
    # The demo shows 0 for a metric that is not there.
    used = {name for file in (ROOT / "tsdb/cli/demo").glob("*.py") for name in METRIC.findall(file.read_text())}
    known = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    assert len(used) > 10
    assert used - known == set()


def test_without_spark_the_demo_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ConfigMismatch("install the extra, kafka-tsdb[spark]", reason="no_pyspark")

    monkeypatch.setattr(spark, "require_pyspark", missing)
    shown = io.StringIO()
    assert spark.show_spark(Console(file=shown), None, Path(), 0)  # type: ignore[arg-type]  # No server is asked.
    assert "kafka-tsdb[spark]" in shown.getvalue()


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
