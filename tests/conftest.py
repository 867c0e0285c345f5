"""Shared fixtures: one real broker and one Cassandra node a run, others to stop or freeze, and logs and histories of
both kinds."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from stack.cassandra import CassandraNode, NodeAccess
from stack.kafka import KafkaCluster
from support import run_order, variants
from support.drills import leftovers
from support.examples import load_profiles
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.shared_servers import SharedBroker, contract_history, shared_broker, shared_node
from tsdb.ops.interpreter import import_without_collections

# Imports all tests without garbage collections, which took 6 % of the CPU of a test process.
import_without_collections()

load_profiles()


# Session timeout of groups by KIP-848. Otherwise the partitions of a killed member would wait for 45 s.
SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


def pytest_configure(config: pytest.Config) -> None:
    """Start the guard in the process that begins the run. Workers of xdist are covered by it."""
    if hasattr(config, "workerinput"):
        return
    leftovers.guard()
    if config.getoption("dist", "no") == "loadfile":
        config.option.basetemp = config.option.basetemp or str(leftovers.run_folder() / "t")
        config.pluginmanager.register(run_order.Recorder())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> run_order.Scheduling | None:
    """Replace xdist's scheduler of `--dist loadfile`."""
    return run_order.Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # Runs before tests are chosen by their marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the variants of `make soak`, and order the tests by recorded durations."""
    variants.leave_others_to_soak(items)
    run_order.longest_first(items)


def pytest_collection_finish() -> None:
    """Collected tests and modules live as long as the process. pytest looks ten times through all objects at its end,
    which took two seconds of CPU."""
    gc.freeze()


@pytest.fixture(scope="session")
def kafka() -> SharedBroker:
    """One real broker for all tests."""
    return shared_broker(SHORT_SESSIONS)


@pytest.fixture(scope="session")
def cassandra() -> NodeAccess:
    """One real node for all tests."""
    return shared_node()


# An idle broker takes a fortieth of a core, so these servers end with their file: a start takes 1.5 s of CPU.
@pytest.fixture(scope="module")
def server_folder() -> Iterator[Path]:
    """Data of the servers of a file."""
    with TemporaryDirectory(prefix="s", dir=leftovers.run_folder(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def broker(server_folder: Path) -> Iterator[KafkaCluster]:
    """A broker that no other process uses. A test may stop or freeze it, and leaves it ready."""
    with KafkaCluster(folder=server_folder / "kafka") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three(server_folder: Path) -> Iterator[KafkaCluster]:
    """A cluster of three brokers for the tests of a file."""
    with KafkaCluster(3, folder=server_folder / "three", settings={"broker.rack": "rack-{node}"}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def node(server_folder: Path) -> Iterator[CassandraNode]:
    """A node of Cassandra for the tests of a file."""
    with CassandraNode(folder=server_folder / "cassandra") as made:
        yield made


@pytest.fixture(params=["sqlite", "kafka"])
def log_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogFactory]:
    """Logs of one kind, with separate topics for each test."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/log.db"
    else:
        url = f"kafka://{request.getfixturevalue('kafka').bootstrap}"
    with LogFactory(url, f"t{uuid.uuid4().hex[:12]}.") as factory:
        yield factory


@pytest.fixture(params=["sqlite", "cassandra"])
def history_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HistoryFactory]:
    """Histories of one kind, made and empty."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/history.db"
    else:
        url = contract_history(request.getfixturevalue("cassandra"))
    with HistoryFactory(url) as factory:
        factory.create()
        yield factory
