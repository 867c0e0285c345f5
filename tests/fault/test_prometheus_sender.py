"""Attacks the promise that accepted means durable with a real Prometheus as the sender.

It scrapes this product and a node exporter, and sends the same to a recorder. Every sample that the recorder has must
be read back bit for bit, and no other: after the gateway was killed, the log was away, and the sender restarted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
from support.drills.outages import GATEWAY_FLAGS, stop
from support.senders.prometheus_drill import sending
from support.servers.deployments import embedded, on_kafka


def test_standalone_has_what_prometheus_sent_across_a_kill_and_a_restart_of_the_sender(tmp_path: Path) -> None:
    with embedded(tmp_path) as deployment:
        with sending(tmp_path, deployment) as sender:
            sender.kill_gateway()
            sender.restart_agent()
            sender.wait_for_metadata(f"sqlite:///{next(tmp_path.glob('data-*'))}/log.sqlite")
            print(f"{sender.check()} samples")
        assert deployment.gateway.terminate() == 0


@pytest.mark.soak  # In each run tests/fault/test_kafka_outage.py has the outage, with other senders.
def test_kafka_has_what_prometheus_sent_across_a_kill_and_an_outage_of_the_log(
    broker: KafkaCluster, tmp_path: Path
) -> None:
    with (
        on_kafka(tmp_path, broker.bootstrap, gateway=GATEWAY_FLAGS) as deployment,
        sending(tmp_path, deployment) as sender,
    ):
        sender.kill_gateway()
        mend = stop(broker)
        sender.wait_for_scrapes(3)
        mend()
        sender.wait_for_metadata(deployment.log[1], deployment.log[3])
        print(f"{sender.check()} samples")
