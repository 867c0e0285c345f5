"""`tsdb status` of a real querier: a part that is away is named, and no lag is shown that is not known."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stack.kafka import KafkaCluster
from support.servers.deployments import on_kafka
from support.servers.logs import wait_until
from support.servers.processes import Role, run_tsdb
from tsdb.client import connect


def status(address: str, *more: str) -> subprocess.CompletedProcess[bytes]:
    return run_tsdb("status", "--address", address, "--timeout", "10s", *more, timeout_s=60.0)


def parts(address: str) -> Sequence[Any]:
    done = status(address, "--output", "json")
    found: Sequence[Any] = json.loads(done.stdout)["away"]
    assert done.returncode == (1 if found else 0), done.stderr
    return found


def test_a_log_and_a_store_that_are_away_are_named_by_a_querier(broker: KafkaCluster, tmp_path: Path) -> None:
    with on_kafka(tmp_path, broker.bootstrap) as deployment:
        stores = ("--stores", deployment.store.grpc)
        with Role(tmp_path, "querier", *deployment.log, *stores) as querier, connect(querier.grpc) as client:

            def away() -> list[str]:
                return [part.part for part in client.away()]

            querier.wait_ready()
            assert parts(querier.grpc) == []
            broker.suspend_broker(0)
            wait_until(lambda: away() == ["log"], 60.0)
            (log,) = parts(querier.grpc)
            assert log["address"] == f"kafka://{broker.bootstrap}"
            assert "Check that Kafka answers" in log["next_step"]
            shown = status(querier.grpc)
            assert shown.returncode == 1
            assert f"away: log kafka://{broker.bootstrap}: no broker answers" in shown.stderr.decode()
            states = json.loads(status(querier.grpc, "--output", "json").stdout)["partitions"]
            assert [state["lag_records"] for state in states] == [None] * len(states)
            assert [line.split()[3] for line in shown.stdout.decode().splitlines()[1 : 1 + len(states)]] == [
                "unknown"
            ] * 3
            broker.resume_broker(0)
            wait_until(lambda: away() == [], 60.0)
            deployment.store.kill()
            wait_until(lambda: away() == ["store"], 60.0)
            (store,) = parts(querier.grpc)
            assert store["address"] == deployment.store.grpc
            assert "refused" in store["error"]
            assert "Start it" in store["next_step"]
