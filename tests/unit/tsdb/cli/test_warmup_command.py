"""`tsdb warmup` leaves nothing to compile."""

from __future__ import annotations

from importlib import import_module

import pytest

from support.cli import Shell
from tsdb.cli.warmup import ROWS


def test_each_listed_module_has_a_warm_up() -> None:
    modules = [module for row in ROWS for module in row]
    assert [module for module in modules if not callable(getattr(import_module(module), "warm_up", None))] == []


@pytest.mark.slow
def test_a_second_warm_up_compiles_nothing(shell: Shell) -> None:
    assert " kernels compiled into " in shell.ok("warmup").err
    second = shell.ok("warmup", "--output", "json").json
    assert set(second["packages"]) == {
        "tsdb.head",
        "tsdb.chunks",
        "tsdb.answer",
        "tsdb.history.loader",
        "tsdb.query",
        "tsdb.promql.evaluate",
        "tsdb.api.prometheus.json",
        "tsdb.api.prometheus.remote_read",
        "ingest",
        "ingest.influx",
        "ingest.otlp",
        "ingest.remote_write",
        "tsdb.ops.grpc",
    }
    assert second["compiled"] == 0
