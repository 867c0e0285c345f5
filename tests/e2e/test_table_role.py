"""`tsdb loader --tables` as a process: history is loaded while the table is missing, and the table catches up later."""

from __future__ import annotations

from pathlib import Path

from support.data.chunk_rows import random_rows
from support.data.chunk_topics import Entry, append_entries, chunk_entry
from support.data.table_rows import expected, fragments, labels_of, reopened, rows_of
from support.servers.histories import HistoryFactory
from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_json, tsdb_ok
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.interface import ChunkRow
from tsdb.log.interface import SERIES
from tsdb.log.open import open_log

PARTITIONS = 3  # The shared settings of test histories state this number.
MISSING = 'tsdb_tables_failures_total{reason="tables_missing"}'


def entries_of(row: ChunkRow) -> list[Entry]:
    """The announcements of a chunk's series, and the chunk."""
    partition, pack_id = row.key.pack_id % PARTITIONS, row.key.pack_id
    (fragment,) = fragments([row])
    found = [
        Entry(SERIES, partition, *encode_announcement(one, 0, pack_id, labels_of(one)))
        for one in fragment.series_id.tolist()
    ]
    return [*found, chunk_entry(partition, row.key, row.value)]


def test_history_does_not_wait_for_the_table_which_catches_up(tmp_path: Path) -> None:
    log_url, rows = f"sqlite:///{tmp_path}/log.db", random_rows(1, packs=3, windows=3, samples=60)
    tables = ("--tables", f"sqlite:///{tmp_path}/catalog.db")
    tsdb_ok("topics", "create", "--log", log_url, "--partitions", str(PARTITIONS), "--replication", "1")
    with HistoryFactory(f"sqlite:///{tmp_path}/history.db") as factory:
        factory.create()
        with open_log(log_url) as log:
            append_entries(log, [entry for row in rows for entry in entries_of(row)])
        arguments = ("--log", log_url, "--history", factory.url, *tables, "--tables-commit-interval-s", "0.3")
        with Role(tmp_path, "loader", *arguments) as loader:
            loader.wait_ready()
            wait_until(lambda: loader.metrics()['tsdb_loader_records_total{kind="chunk"}'] >= len(rows))
            wait_until(lambda: loader.metrics().get(MISSING, 0) > 0)
            assert loader.terminate() == 0
            assert tsdb_json("tables", "create", *tables)["made"]
            loader.start()
            want = expected(fragments(rows))
            wait_until(lambda: len(rows_of(reopened(tmp_path))) == len(want))
            assert tsdb_json("tables", "check", *tables)["samples"] == len(want)
            assert loader.terminate() == 0
    assert rows_of(reopened(tmp_path)) == want
