"""Attacks the promise that no answer is silently short: the readers of the log are held back by a broker's quota."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
from support.reads.lagging_readers import lag_is_stated
from support.servers.deployments import on_kafka
from support.servers.processes import Role


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("quiet_s", "lagging_s"), [(5.0, 15.0), pytest.param(60.0, 300.0, marks=pytest.mark.soak)], ids=["short", "long"]
)
def test_readers_behind_a_quota_are_never_silently_short(
    broker: KafkaCluster, tmp_path: Path, quiet_s: float, lagging_s: float
) -> None:
    with (
        on_kafka(tmp_path, broker.bootstrap) as running,
        Role(tmp_path, "querier", *running.log, "--stores", running.store.grpc) as querier,
    ):
        lag_is_stated(broker, running.gateway, querier, quiet_s=quiet_s, lagging_s=lagging_s)
