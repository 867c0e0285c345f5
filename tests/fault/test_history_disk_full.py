"""Attacks the promise that a full disk loses nothing and says so: the files of a loader's history cannot grow.

The same on a real full disk: tests/soak/test_attacks_disk.py.
"""

from __future__ import annotations

from pathlib import Path

from support.drills.disk_drills import files_cannot_grow, history_is_full
from support.servers.deployments import create_topics
from support.servers.histories import HistoryFactory
from support.servers.processes import Role
from support.shared_servers import SharedBroker
from tsdb.log.open import open_log


def test_a_loader_whose_history_is_full_says_so_and_loses_nothing(kafka: SharedBroker, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    log = create_topics(kafka.bootstrap)
    with HistoryFactory(f"sqlite:///{folder}/history.db") as factory:
        factory.create()
    history = ("--history", f"sqlite:///{folder}/history.db")
    with Role(tmp_path, "loader", *log, *history) as role, open_log(log[1], prefix=log[3]) as opened:
        history_is_full(role, opened, folder, files_cannot_grow, windows=6)
