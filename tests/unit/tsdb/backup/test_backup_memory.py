"""Memory of backup and restore does not grow with history: both hold one row group at a time."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from support.backup.backups import Ground, ground
from support.servers.histories import WINDOW_MS, HistoryFactory
from tsdb.backup.files import GROUP_BYTES
from tsdb.history.sqlite.database import PUT_CHUNK

MIB = 1 << 20
ROWS, ROW_BYTES = 1_280, 64 << 10
# Memory of a group as rows, as columns, as Parquet's pages and as bytes of a file, each with a copy, and of rows read
# ahead.
BYTES_MAX = 12 * GROUP_BYTES


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Ground]:
    """80 MiB of chunks, all of one token range."""
    with ground(f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db") as made:
        value = bytes(range(256)) * (ROW_BYTES // 256)
        with closing(sqlite3.connect(tmp_path / "history.db")) as database, database:
            rows = ((7, window * WINDOW_MS, window + 1, 0, 0, value) for window in range(ROWS))
            database.executemany(PUT_CHUNK, rows)
        yield made


def peak_bytes(action: Callable[[], object]) -> int:
    """Highest memory of Python's objects and of Arrow during the action, above that at its start."""
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def test_memory_is_bounded_by_a_row_group(large: Ground, tmp_path: Path) -> None:
    backup = peak_bytes(lambda: large.back_up(tmp_path / "backup"))
    with HistoryFactory(f"sqlite:///{tmp_path}/second.db") as second:
        second.create()
        target = large.target(second)
        restore = peak_bytes(lambda: large.restore(tmp_path / "backup", target))
    print(f"{ROWS * ROW_BYTES / MIB:.0f} MiB of chunks: backup {backup / MIB:.1f} MiB, restore {restore / MIB:.1f} MiB")
    assert max(backup, restore) < BYTES_MAX
