"""Snapshot writer: when a snapshot is due, and what a write that fails, or a drain, leaves."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from support.counters import sample
from support.data.heads import Record, apply, new_head
from support.servers.logs import wait_until
from support.simulation.log import SimulatedLog
from tsdb.head.head import Head
from tsdb.head.head_image import image_of
from tsdb.head.state import HeadLimits
from tsdb.log.interface import METRICS, Group
from tsdb.model.clock import ManualClock
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import SliceLengths
from tsdb.store.snapshots.content import SnapshotPosition
from tsdb.store.snapshots.file_reader import SnapshotFile
from tsdb.store.snapshots.folder import SnapshotFolder
from tsdb.store.snapshots.key import StoreKey
from tsdb.store.snapshots.writer import SnapshotWriter

INTERVAL_S = 600.0
NOW_MS = 10_000
KEY = StoreKey("m", "s", MetaSettings(3), SliceLengths(10, 40), 100, HeadLimits())


class Ground:
    """A writer over a log with two records of partition 0."""

    def __init__(self, folder: Path, drain_s: float = 60.0) -> None:
        self.clock = ManualClock(NOW_MS)
        self.log = SimulatedLog(3, self.clock, 15, lambda group_id: cast(Group, None))
        self.folder = SnapshotFolder(folder)
        self.writer = SnapshotWriter(self.folder, KEY, self.log, self.clock, interval_s=INTERVAL_S, drain_s=drain_s)
        for _ in range(2):
            self.log.append_sync(METRICS, 0, b"record")

    def head(self, records: int) -> Head:
        head = new_head(series=1)
        apply(head, [Record(offset, NOW_MS, ((0, NOW_MS, 1.0),)) for offset in range(records)])
        return head

    def put(self, records: int = 2) -> None:
        self.writer.put(0, image_of(self.head(records)), 5)

    def due(self, *ends: int) -> bool:
        return self.writer.is_due(0, (ends[0], ends[1]))

    def end(self) -> None:
        self.writer.close()
        assert self.writer.join(60.0)
        assert self.writer.failure() is None


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    (tmp_path / "folder").mkdir()
    return Ground(tmp_path / "folder")


def test_a_snapshot_is_due_once_an_interval_when_the_head_has_changed(ground: Ground) -> None:
    assert ground.due(2, 5)
    ground.writer.start()
    ground.put()
    wait_until(lambda: ground.writer.is_written(0, (2, 5)), 60.0)
    assert not ground.due(3, 5)
    ground.clock.advance(int(INTERVAL_S * 1000))
    wait_until(lambda: ground.due(3, 5), 60.0)  # The writer may not have put the last job away yet.
    assert ground.due(2, 6)
    assert not ground.due(2, 5)
    ground.end()


def test_no_image_is_taken_while_one_is_in_hand(ground: Ground) -> None:
    ground.put()
    assert not ground.writer.is_due(1, (1, 1))


def test_a_restored_snapshot_counts_by_its_age(ground: Ground) -> None:
    ground.writer.restored(0, SnapshotPosition(2, 1, 0, 0, 5, NOW_MS - 400_000))
    assert not ground.due(9, 9)
    ground.clock.advance(200_000)
    assert ground.due(9, 9)
    assert not ground.due(2, 5)


def test_a_close_writes_what_is_in_hand(ground: Ground) -> None:
    ground.put()
    ground.writer.start()
    ground.end()
    with SnapshotFile(ground.folder.file(0)) as file:
        assert file.document["place"][:2] == [2, 1]
    assert sample("tsdb_store_snapshot_bytes", partition="0") == ground.folder.file(0).stat().st_size
    assert sample("tsdb_store_snapshot_timestamp_seconds", partition="0") == NOW_MS / 1000


def test_a_drain_without_time_leaves_the_former_file(tmp_path: Path) -> None:
    ground = Ground(tmp_path, drain_s=0.0)
    check_failure(ground, "drain")
    assert list(tmp_path.iterdir()) == []


def test_an_abort_writes_nothing_more(ground: Ground) -> None:
    ground.put()
    ground.writer.abort()
    ground.writer.start()
    assert ground.writer.join(60.0)
    assert not ground.folder.file(0).exists()


def test_a_disk_that_refuses_is_counted_and_the_writer_lives(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "missing")
    check_failure(ground, "disk")


def test_a_log_without_the_last_record_is_counted_and_the_writer_lives(ground: Ground) -> None:
    ground.log.trim(METRICS, 0, 2)
    check_failure(ground, "log")
    assert not ground.folder.file(0).exists()


def check_failure(ground: Ground, reason: str) -> None:
    """A write fails for a reason, is counted, and is tried again an interval later."""
    before = sample("tsdb_store_snapshot_write_failures_total", reason=reason)
    ground.put()
    ground.writer.close()
    ground.writer.start()
    ground.end()
    assert sample("tsdb_store_snapshot_write_failures_total", reason=reason) == before + 1
    assert not ground.due(2, 5)
    ground.clock.advance(int(INTERVAL_S * 1000))
    assert ground.due(2, 5)
