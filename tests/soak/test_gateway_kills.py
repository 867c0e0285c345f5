"""Attacks the promise that an OK means stored: fifty kills of the gateway under load, half of them on Kafka."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
from support.gateway_kills import kill_under_load

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
KILLS = 25


def test_twenty_five_kills_on_the_embedded_log(tmp_path: Path) -> None:
    kill_under_load(f"sqlite:///{tmp_path}/log.db", tmp_path, KILLS, seed=random.randrange(1 << 32))


def test_twenty_five_kills_on_kafka(kafka: KafkaCluster, tmp_path: Path) -> None:
    kill_under_load(f"kafka://{kafka.bootstrap}", tmp_path, KILLS, seed=random.randrange(1 << 32))
