"""`tsdb loader` as a process: ready, loading, drained by SIGTERM with exit code 0, continued by the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.data.chunk_topics import Expected, append_entries, staged
from support.servers.histories import HistoryFactory
from support.servers.loaders import assert_holds, is_loaded
from support.servers.logs import wait_until
from support.servers.processes import Role, run_tsdb, tsdb_ok
from support.shared_servers import SharedBroker
from tsdb.history.interface import ChunkStore
from tsdb.log.interface import METRICS, Log
from tsdb.log.open import open_log

PARTITIONS = 3  # The shared settings of test histories state this number.


def filled(log: Log, windows: int, first_window: int = 0) -> Expected:
    entries, expected = staged(log.topic_id(METRICS), PARTITIONS, windows, 5, 1, first_window=first_window)
    append_entries(log, entries)
    return expected


def all_loaded(log: Log, store: ChunkStore, expected: Expected) -> bool:
    return is_loaded(log) and store.loaded(log.topic_id(METRICS)) == expected.loaded


def test_it_loads_drains_and_goes_on(kafka: SharedBroker, tmp_path: Path) -> None:
    access = ("--log", f"kafka://{kafka.bootstrap}", "--log-prefix", f"{tmp_path.name}.")
    tsdb_ok("topics", "create", *access, "--partitions", str(PARTITIONS), "--replication", "1")
    with HistoryFactory(f"sqlite:///{tmp_path}/history.db") as factory:
        factory.create()
        store = factory.open()
        with open_log(access[1], prefix=access[3]) as log:
            expected = filled(log, windows=4)
            with Role(tmp_path, "loader", *access, "--history", factory.url) as loader:
                loader.wait_ready()
                wait_until(lambda: all_loaded(log, store, expected), 60.0)
                assert loader.metrics()['tsdb_loader_records_total{kind="chunk"}'] >= len(expected.rows)
                partitions = loader.ready()[1]["partitions"]
                assert sorted(partitions) == [str(number) for number in range(PARTITIONS)]
                assert loader.terminate() == 0
                more = expected.later(filled(log, windows=3, first_window=4))
                loader.start()
                wait_until(lambda: all_loaded(log, store, more), 60.0)
            assert_holds(store, log, more)


@pytest.mark.parametrize("flag", ["--history", "--log"])
def test_it_needs_a_log_and_a_history(flag: str, tmp_path: Path) -> None:
    given = {"--history": f"sqlite:///{tmp_path}/h.db", "--log": f"sqlite:///{tmp_path}/log.db"}
    tsdb_ok("topics", "create", "--log", given["--log"], "--partitions", "3", "--replication", "1")
    del given[flag]
    done = run_tsdb("loader", *(word for pair in given.items() for word in pair), "--http", "127.0.0.1:0")
    assert done.returncode in (1, 2)
    assert flag.removeprefix("--") in done.stderr.decode()
