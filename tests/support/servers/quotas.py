"""Broker quotas: lag injected from outside of our processes, by letting a broker hand out few bytes a second."""

from __future__ import annotations

import subprocess

from stack.kafka import C1_ALONE, KafkaCluster
from stack.maven import KAFKA, jars
from support.shared_servers import SharedBroker

WITHIN_S = 120.0
KEY = "consumer_byte_rate"


def throttle_readers(cluster: KafkaCluster | SharedBroker, bytes_per_s: int, client_id: str = "") -> None:
    """Limit the bytes that clients of this id fetch together. An empty id means all clients. Other requests are not
    limited.
    """
    _alter(cluster, client_id, "--add-config", f"{KEY}={bytes_per_s}")


def release_readers(cluster: KafkaCluster | SharedBroker, client_id: str = "") -> None:
    """Remove the bound of readers again."""
    _alter(cluster, client_id, "--delete-config", KEY)


def _alter(cluster: KafkaCluster | SharedBroker, client_id: str, *change: str) -> None:
    # No Python client speaks this part of the protocol.
    tool = ["java", *C1_ALONE, "-cp", f"{jars(KAFKA)}/*", "kafka.admin.ConfigCommand"]
    entity = ["--entity-type", "clients", *(["--entity-name", client_id] if client_id else ["--entity-default"])]
    command = [*tool, "--bootstrap-server", cluster.bootstrap, "--alter", *entity, *change]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
