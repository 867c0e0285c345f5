"""Attacks the promise that accepted means durable with a real Prometheus, for as long as senders must bear.

The log is away for a minute, the gateway is killed five times, and the sender restarts in between. Its queue drains,
and what it sent is read back bit for bit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
from support.drills.outages import GATEWAY_FLAGS, Strike, freeze, stop
from support.senders.prometheus_drill import sending
from support.servers.deployments import embedded, on_kafka

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

AWAY_SCRAPES = 60  # Number of scrapes without the log, one each second.


@pytest.mark.parametrize("strike", [stop, freeze])
def test_the_queue_of_prometheus_drains_after_a_minute_without_the_log(tmp_path: Path, strike: Strike) -> None:
    with (
        KafkaCluster() as broker,
        on_kafka(tmp_path, broker.bootstrap, gateway=GATEWAY_FLAGS) as deployment,
        sending(tmp_path, deployment) as sender,
    ):
        mend = strike(broker)
        sender.wait_for_scrapes(AWAY_SCRAPES, within_s=4.0 * AWAY_SCRAPES)
        mend()
        sender.wait_for_scrapes(5)
        sender.restart_agent()
        print(f"{sender.check()} samples")


def test_kills_one_after_another_lose_nothing_of_prometheus(tmp_path: Path) -> None:
    with embedded(tmp_path) as deployment, sending(tmp_path, deployment) as sender:
        for _ in range(5):
            sender.kill_gateway()
            sender.restart_agent()
        print(f"{sender.check()} samples")
