"""Attacks the promise that accepted means durable: the gateway dies by SIGKILL at random instants under load.

Eight clients write without pause, and a request is in flight at each kill. Every sample answered with OK must be read
back from a store. With the embedded log the whole process dies, log writer and store included.
"""

from __future__ import annotations

from pathlib import Path

from support.drills.drills import kill_gateway
from support.servers.deployments import embedded, on_kafka
from support.shared_servers import SharedBroker


def test_every_ok_outlives_kills_of_the_embedded_process(tmp_path: Path) -> None:
    with embedded(tmp_path) as deployment:
        kill_gateway(deployment, kills=4, seed=3)


def test_every_ok_outlives_kills_of_a_gateway_on_kafka(kafka: SharedBroker, tmp_path: Path) -> None:
    with on_kafka(tmp_path, kafka.bootstrap) as deployment:
        kill_gateway(deployment, kills=3, seed=5)
