"""Attacks the promise that one stuck part does not block the others: the broker, a store or Cassandra is frozen by
SIGSTOP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.cassandra import CassandraNode
from stack.kafka import KafkaCluster
from support.reads.stuck_parts import Fleet, broker_is_frozen, cassandra_is_frozen, fleet, store_is_frozen

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.parametrize("seconds", [15.0, pytest.param(60.0, marks=pytest.mark.soak)]),
]


@pytest.fixture(scope="module")
def running(broker: KafkaCluster, node: CassandraNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    scratch: Path = tmp_path_factory.mktemp("stuck")
    with fleet(scratch, broker.bootstrap, f"cassandra://{node.host}:{node.port}/stuck") as made:
        yield made


def test_a_frozen_store_holds_up_no_read(running: Fleet, seconds: float) -> None:
    store_is_frozen(running, seconds)
    for store in running.stores:
        store.wait_ready()


def test_a_frozen_broker_holds_up_no_read(broker: KafkaCluster, running: Fleet, seconds: float) -> None:
    broker_is_frozen(broker, running, seconds)


def test_a_frozen_cassandra_holds_up_nothing_but_history(node: CassandraNode, running: Fleet, seconds: float) -> None:
    cassandra_is_frozen(node, running, seconds)
