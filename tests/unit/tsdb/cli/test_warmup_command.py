"""`tsdb warmup` leaves nothing to compile."""

from __future__ import annotations

import pytest

from support.cli import Shell


@pytest.mark.slow
def test_a_second_warm_up_compiles_nothing(shell: Shell) -> None:
    assert " kernels compiled into " in shell.ok("warmup").err
    second = shell.ok("warmup", "--output", "json").json
    assert set(second["packages"]) == {
        "tsdb.head",
        "tsdb.chunks",
        "tsdb.client",
        "tsdb.history.loader",
        "tsdb.query",
        "tsdb.promql.evaluate",
        "tsdb.api.prometheus.json",
        "tsdb.api.prometheus.remote_read",
        "ingest",
        "ingest.influx",
        "ingest.otlp",
        "ingest.remote_write",
    }
    assert second["compiled"] == 0
