"""Shared fixtures: one real broker and one Cassandra node a run, others to stop or freeze, and logs and histories of
both kinds."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stack.cassandra import CassandraNode, NodeAccess
from stack.kafka import KafkaCluster
from support import run_order, variants
from support.drills import leftovers
from support.examples import load_profiles
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.shared_servers import (
    SHORT_SESSIONS,
    GroupServers,
    SharedBroker,
    contract_history,
    shared_broker,
    shared_node,
)
from tsdb.ops.interpreter import import_without_collections

# Imports all tests without garbage collections, which took 6 % of the CPU of a test process.
import_without_collections()

load_profiles()


def pytest_configure(config: pytest.Config) -> None:
    """Start the guard in the process that begins the run. Workers of xdist are covered by it."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(run_order.CpuMeter())
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


class CollectedClients:
    """Ends admin clients of Kafka that no test uses any more.

    One is in a cycle with the answers it gave, so it keeps its threads and connections until a collection. Hundreds of
    them look for brokers that are gone, and take the processor from the tests after them.
    """

    def __init__(self) -> None:
        self._threads = 0  # After the last collection, which takes half a second.

    def look(self) -> None:
        threads = len(os.listdir("/proc/self/task"))
        if threads > self._threads + NEW_THREADS_MAX:
            gc.collect()
            self._threads = len(os.listdir("/proc/self/task"))
        else:
            self._threads = min(self._threads, threads)


NEW_THREADS_MAX = 60
_collected_clients = CollectedClients()

# An idle broker takes a fortieth of a core and an idle browser more, so these servers end with the files of their
# group. A start of Cassandra takes five seconds of CPU, of the browser three.
_group_servers = GroupServers()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the servers of a group after its last test, and after all fixtures that use them."""
    try:
        yield
    finally:
        if nextitem is None or run_order.group_of_item(nextitem) != run_order.group_of_item(item):
            _group_servers.close()
        _collected_clients.look()


@pytest.fixture(scope="session")
def group_servers() -> GroupServers:
    """Servers of the group of files that runs."""
    return _group_servers


@pytest.fixture(scope="module")
def broker(group_servers: GroupServers) -> KafkaCluster:
    """A broker that no other process uses. A test may stop or freeze it, and leaves it ready."""
    return group_servers.server("broker", lambda folder: KafkaCluster(folder=folder))


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    """A cluster of three brokers for the tests of a file: a fail-over takes longer with the topics of other files."""
    servers, settings = GroupServers(), {"broker.rack": "rack-{node}"}
    yield servers.server("three", lambda folder: KafkaCluster(3, folder=folder, settings=settings))
    servers.close()


@pytest.fixture(scope="module")
def node(group_servers: GroupServers) -> CassandraNode:
    """A node of Cassandra that no other process uses."""
    return group_servers.server("node", lambda folder: CassandraNode(folder=folder))


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
