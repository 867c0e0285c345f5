"""Attacks the promise that an OK means stored: a gateway process is killed (SIGKILL) at random instants under load.

Eight clients send without pause and send again what was not answered OK; a request is in flight at every kill.
tests/soak has the long one.
"""

from __future__ import annotations

import random
from pathlib import Path

from stack.kafka import KafkaCluster
from support.gateway_kills import kill_under_load

KILLS = 3


def test_every_ok_on_the_embedded_log_outlives_kills_of_the_gateway(tmp_path: Path) -> None:
    kill_under_load(f"sqlite:///{tmp_path}/log.db", tmp_path, KILLS, seed=random.randrange(1 << 32))


def test_every_ok_on_kafka_outlives_kills_of_the_gateway(kafka: KafkaCluster, tmp_path: Path) -> None:
    kill_under_load(f"kafka://{kafka.bootstrap}", tmp_path, KILLS, seed=random.randrange(1 << 32))
