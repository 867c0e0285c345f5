"""Shared fixtures: one real broker and one Cassandra node a run; logs and histories of both kinds."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler.loadfile import LoadFileScheduling

from stack.cassandra import NodeAccess
from support.drills import leftovers
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.shared_servers import SharedBroker, contract_history, shared_broker, shared_node
from tsdb.ops.interpreter import import_without_collections

import_without_collections()  # Here of all tests and their modules: 6 % of the CPU of a test process.

# An example is slow on a busy machine or while a kernel compiles. pytest-timeout ends a test that hangs.
settings.register_profile("tests", deadline=None, print_blob=True)
settings.load_profile("tests")


# Of groups by KIP-848: a killed member's partitions would wait for 45 s.
SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
SPARK = "tests/spark/"
PAGES = "tests/e2e/ui/"
# The longest tests begin first, so that the run does not end with one process at work. One process runs a whole file:
# first the files that take 90 s and more, then the others by folder.
LONGEST_FIRST = (
    SPARK,
    "tests/integration/test_kafka_faults.py",
    "tests/fault/test_three_brokers.py",
    "tests/fault/test_history_outage.py",
    "tests/e2e/test_readme.py",
    PAGES,
    "tests/e2e/test_round_trip.py",
    "tests/property/test_simulation.py",
    "tests/e2e/reads/test_memory_and_history.py",
    "tests/e2e/test_rolling_restart.py",
    "tests/fault/",
    "tests/e2e/",
    "tests/integration/",
    "tests/contract/",
    "tests/property/",
)


class FoldersTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types.
    """A file's tests in one process. Those of all Spark files are in one, for a JVM with its workers takes a gigabyte;
    those of all pages too, for they share a server."""

    def _split_scope(self, nodeid: str) -> str:
        together = (folder for folder in (SPARK, PAGES) if nodeid.startswith(folder))
        return next(together, None) or str(super()._split_scope(nodeid))


def pytest_configure(config: pytest.Config) -> None:
    """Start the guard in the process that begins the run. Workers of xdist are covered by it."""
    if not hasattr(config, "workerinput"):
        leftovers.guard()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FoldersTogether | None:
    """Replace xdist's scheduler of `--dist loadfile`."""
    return FoldersTogether(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by the list of the longest; the tests of a file stay together and in their order."""

    def rank(item: pytest.Item) -> int:
        places = (number for number, place in enumerate(LONGEST_FIRST) if item.nodeid.startswith(place))
        return next(places, len(LONGEST_FIRST))

    items.sort(key=rank)


@pytest.fixture(scope="session")
def kafka() -> SharedBroker:
    """One real broker for all tests."""
    return shared_broker(SHORT_SESSIONS)


@pytest.fixture(scope="session")
def cassandra() -> NodeAccess:
    """One real node for all tests."""
    return shared_node()


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
