"""Attacks the promise that a full disk loses nothing and says so: a real one, of the whole process or of history alone.

Seen before there were bounds: 445 log lines in 40 s, and a readiness that did not say why. The short twins:
tests/e2e/test_refusals.py and tests/fault/test_history_disk_full.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.drills.disk_drills import SmallDisk, check_says_why, history_is_full, log_is_full
from support.servers.deployments import create_topics
from support.servers.histories import HistoryFactory
from support.servers.processes import Role, UnreadyRole
from support.shared_servers import SharedBroker
from tsdb.log.open import open_log

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

MIB = 1 << 20


def test_one_process_with_a_full_disk_refuses_answers_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    disk = SmallDisk(folder, 32 * MIB)
    with Role(tmp_path, "standalone", "--data-dir", str(folder), wrapper=disk.wrapper) as role:
        log_is_full(role, folder, disk.full)


def test_a_loader_whose_history_is_full_says_so_and_loses_nothing(kafka: SharedBroker, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    with HistoryFactory(f"sqlite:///{folder}/history.db") as factory:
        factory.create()
    disk, log = SmallDisk(folder, 64 * MIB), create_topics(kafka.bootstrap)
    history = ("--history", f"sqlite:///{folder}/history.db")
    with (
        Role(tmp_path, "loader", *log, *history, wrapper=disk.wrapper) as role,
        open_log(log[1], prefix=log[3]) as opened,
    ):
        history_is_full(role, opened, folder, disk.full, windows=40)


def test_a_loader_that_starts_on_a_full_disk_says_so_and_goes_on(kafka: SharedBroker, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    with HistoryFactory(f"sqlite:///{folder}/history.db") as factory:
        factory.create()
    disk, log = SmallDisk(folder, MIB, born_full=True), create_topics(kafka.bootstrap)
    history = ("--history", f"sqlite:///{folder}/history.db")
    with UnreadyRole(tmp_path, "loader", *log, *history, wrapper=disk.wrapper) as loader:
        check_says_why(loader, folder / "history.db")
        with disk.full(loader):
            pass
        loader.wait_ready()
