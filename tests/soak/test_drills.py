"""Attacks the promises about OK and about stalls for long: fifty kills of the gateway, a minute without the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
from support.drills.drills import kill_gateway, kill_store
from support.drills.outages import (
    GATEWAY_FLAGS,
    Strike,
    broker_away,
    fleet,
    freeze,
    kill,
    outages,
    outages_leave_all_well,
    stop,
)
from support.servers.deployments import Deployment, embedded, on_kafka

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

AWAY_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaCluster]:
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def deployment(broker: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with on_kafka(tmp_path_factory.mktemp("soak"), broker.bootstrap, gateway=GATEWAY_FLAGS) as running:
        yield running


def test_every_ok_outlives_25_kills_of_the_embedded_process(tmp_path: Path) -> None:
    with embedded(tmp_path) as running:
        kill_gateway(running, kills=25, seed=101)


def test_every_ok_outlives_25_kills_of_a_gateway_on_kafka(deployment: Deployment) -> None:
    kill_gateway(deployment, kills=25, seed=102)


def test_a_store_comes_back_from_the_log_alone_20_times(deployment: Deployment) -> None:
    kill_store(deployment, kills=20, seed=103)


@pytest.mark.parametrize("strike", [stop, kill, freeze])
def test_a_minute_without_the_broker_costs_no_ok(broker: KafkaCluster, deployment: Deployment, strike: Strike) -> None:
    broker_away(broker, deployment, strike, least_s=AWAY_S)


def test_every_process_is_well_soon_after_each_of_40_outages(broker: KafkaCluster, tmp_path: Path) -> None:
    with fleet(tmp_path, broker.bootstrap) as running:
        outages_leave_all_well(broker, running, outages(seed=40, count=40, shortest_s=5.0, longest_s=68.0))
