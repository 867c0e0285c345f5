"""Spark tests share one session, begun by the first that asks for it; all of them run in one process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_backfill.worker_log import close_worker_log
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.shared_servers import contract_history
from support.spark.imports import ImportGround
from support.spark.sample_streams import make_log
from support.spark.spark import test_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all Spark tests."""
    with test_session(tmp_path_factory.mktemp("spark")) as made:
        yield made


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[ImportGround]:
    """An embedded log and history with a loader."""
    logs, histories = LogFactory(f"sqlite:///{tmp_path}/log.db", ""), HistoryFactory(f"sqlite:///{tmp_path}/history.db")
    with logs, histories, ImportGround(logs, histories) as ground:
        yield ground


@pytest.fixture
def plain_log(tmp_path: Path) -> Iterator[LogFactory]:
    """An embedded log with settings, for tests without history."""
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs:
        make_log(logs).close()  # One log in a process writes, and a test opens it.
        yield logs
    close_worker_log()


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[ImportGround]:
    """A log on Kafka and a history in Cassandra, with a loader."""
    node, kafka = request.getfixturevalue("cassandra"), request.getfixturevalue("kafka")
    logs = LogFactory(f"kafka://{kafka.bootstrap}", f"t{uuid.uuid4().hex[:12]}.")
    histories = HistoryFactory(contract_history(node))
    with logs, histories, ImportGround(logs, histories) as ground:
        yield ground


@pytest.fixture(params=["embedded", "servers"])
def ground(request: pytest.FixtureRequest) -> ImportGround:
    made: ImportGround = request.getfixturevalue(request.param)
    return made
