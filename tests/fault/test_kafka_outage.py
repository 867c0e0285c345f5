"""Attacks the promises that OK means durable and that a stall shows: the only broker is stopped, killed or frozen.

Eight clients write without pause. While the broker is away every write is refused in time and with a hint when to come
back, the store says that it is not ready and stays alive; after, every sample answered OK is read back, retries
succeed, and of two writes to one (series, time) the newer acknowledged one stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
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
from support.servers.deployments import Deployment, on_kafka


@pytest.fixture(scope="module")
def deployment(broker: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    scratch: Path = tmp_path_factory.mktemp("outage")
    with on_kafka(scratch, broker.bootstrap, gateway=GATEWAY_FLAGS) as running:
        yield running


@pytest.mark.parametrize("strike", [stop, kill, freeze])
def test_an_outage_costs_no_ok_and_shows(broker: KafkaCluster, deployment: Deployment, strike: Strike) -> None:
    broker_away(broker, deployment, strike, least_s=5.0)


@pytest.mark.timeout(900)
def test_every_process_is_well_soon_after_an_outage_of_each_kind(broker: KafkaCluster, tmp_path: Path) -> None:
    with fleet(tmp_path, broker.bootstrap) as running:
        outages_leave_all_well(broker, running, outages(seed=1, count=3, shortest_s=5.0, longest_s=12.0))
