"""Broker quotas: lag injected from outside of our processes, by letting a broker hand out few bytes a second."""

from __future__ import annotations

import subprocess

from stack.kafka import KafkaCluster
from stack.maven import KAFKA, jars

WITHIN_S = 120.0
KEY = "consumer_byte_rate"


def throttle_readers(cluster: KafkaCluster, bytes_per_s: int) -> None:
    """Limit the bytes that all clients together fetch. Other requests are not limited."""
    _alter(cluster, "--add-config", f"{KEY}={bytes_per_s}")


def release_readers(cluster: KafkaCluster) -> None:
    """Remove the bound of readers again."""
    _alter(cluster, "--delete-config", KEY)


def _alter(cluster: KafkaCluster, *change: str) -> None:
    # No Python client speaks this part of the protocol.
    tool = ["java", "-Xshare:auto", "-cp", f"{jars(KAFKA)}/*", "kafka.admin.ConfigCommand"]
    entity = ["--entity-type", "clients", "--entity-default"]
    command = [*tool, "--bootstrap-server", cluster.bootstrap, "--alter", *entity, *change]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
