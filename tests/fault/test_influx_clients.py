"""Attacks the promise that accepted means durable with a real sender of Influx line protocol: InfluxDB's own client.

The gateway dies by SIGKILL while the clients write. Each write that they were told to forget must be read back bit for
bit, and nothing else.
"""

from __future__ import annotations

import threading
from pathlib import Path

from support.senders.influx_clients import InfluxClients
from support.servers.deployments import Deployment, embedded, on_kafka
from support.servers.logs import wait_until
from support.shared_servers import SharedBroker

KILLS = 1
REQUESTS_BETWEEN = 20
TOKEN = "influx-sender"


def kill_under_clients(deployment: Deployment, *, token: str, gzip: bool, seed: int) -> None:
    with InfluxClients(f"http://{deployment.gateway.http}", token=token, gzip=gzip, seed=seed) as clients:
        for _ in range(KILLS):
            clients.wait_for_requests(REQUESTS_BETWEEN)
            wait_until(lambda: clients.in_flight > 0, 30.0)
            deployment.gateway.kill()
            threading.Event().wait(0.3)  # Some tries of the clients meet no gateway.
            deployment.gateway.start()
        clients.wait_for_requests(REQUESTS_BETWEEN)
    with deployment.reader() as reader:
        samples = clients.judge(reader)
    print(f"seed {seed}: {clients.requests} writes, {samples} samples read back")


def test_what_a_client_wrote_to_standalone_outlives_kills(tmp_path: Path) -> None:
    with embedded(tmp_path) as deployment:
        kill_under_clients(deployment, token="any", gzip=False, seed=31)


def test_what_a_client_wrote_with_a_token_to_a_gateway_on_kafka_outlives_kills(
    kafka: SharedBroker, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    with on_kafka(tmp_path, kafka.bootstrap, gateway=("--token-file", str(file))) as deployment:
        kill_under_clients(deployment, token=TOKEN, gzip=True, seed=32)
