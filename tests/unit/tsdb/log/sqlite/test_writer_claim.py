"""A role that writes an embedded log claims it at its start; a second one is refused there, and readers are not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.logs import LogFactory
from tsdb.log.interface import METRICS
from tsdb.log.settings import LogSettings
from tsdb.model.errors import ConfigMismatch

CLAIM = LogSettings(embedded_claim=True)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogFactory]:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(1)
        yield factory


def test_a_second_writer_is_refused_at_its_start_by_the_process_in_its_way(logs: LogFactory) -> None:
    first = logs.open(CLAIM)
    with pytest.raises(ConfigMismatch, match=f"log.db.lock is held by process {os.getpid()}") as refused:
        logs.open(CLAIM)
    assert refused.value.reason == "log_in_use"
    assert first.append_sync(METRICS, 0, b"x").offset == 0


def test_a_claim_ends_with_its_log(logs: LogFactory) -> None:
    logs.open(CLAIM).close()
    logs.open(CLAIM).append_sync(METRICS, 0, b"x")


def test_readers_open_a_claimed_log(logs: LogFactory) -> None:
    writer = logs.open(CLAIM)
    writer.append_sync(METRICS, 0, b"x")
    assert logs.open().watermarks(METRICS, [0])[0].high == 1
