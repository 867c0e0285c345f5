"""A restore is refused before anything is changed, with the reason and the next step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.backup.backups import WINDOWS, Ground, ground
from support.servers.histories import HistoryFactory, announcement, row, write_rows, written
from support.servers.logs import LogFactory
from tsdb.backup.backup import BackupSource, back_up
from tsdb.backup.checks import read_manifest
from tsdb.backup.folder import BackupFolder
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.interface import ChunkStore, Loaded
from tsdb.history.loader.loader import GROUP
from tsdb.history.shared_settings import shared_rows
from tsdb.log.interface import CHUNKS, METRICS
from tsdb.log.lone_member import lone_member
from tsdb.model.clock import ManualClock, SystemClock
from tsdb.model.errors import ConfigMismatch, InvalidRequest, TsdbError, Unavailable, UnknownVersion
from tsdb.model.meta import MetaSettings

DAY_MS = 24 * 3_600_000


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with log, history and `backup`, and the prefix of the topics. The loader takes a second."""
    folder = tmp_path_factory.mktemp("first")
    with ground(f"sqlite:///{folder}/log.db", f"sqlite:///{folder}/history.db") as made:
        expected = made.append_windows()
        made.load(made.histories.open(), expected)
        made.back_up(folder / "backup")
        made.histories.empty()
        return folder, made.logs.prefix


@pytest.fixture
def saved(first: tuple[Path, str], tmp_path: Path) -> Iterator[Ground]:
    """With a backup in the folder `backup`, and a history that was emptied since."""
    folder, prefix = first
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    logs = LogFactory(f"sqlite:///{tmp_path}/log.db", prefix)
    with logs, HistoryFactory(f"sqlite:///{tmp_path}/history.db") as histories:
        yield Ground(logs, histories, logs.open(), SystemClock())


def refused(made: Ground, folder: Path, kind: type[TsdbError], reason: str, hint: str) -> None:
    store = made.histories.open()
    before = rows_of(store, made)
    with pytest.raises(kind, match=hint) as error:
        made.restore(folder, made.target())
    assert error.value.reason == reason
    assert rows_of(store, made) == before, "a refused restore changes nothing"


def rows_of(store: ChunkStore, made: Ground) -> tuple[object, ...]:
    chunks = [one for split in store.row_splits(1) for piece in store.scan(split) for one in piece]
    return chunks, store.epochs(), store.loaded(made.log.topic_id(METRICS)), store.holes(None, -(1 << 60), 1 << 60)


FULL: dict[str, Callable[[ChunkStore, str], None]] = {
    "chunks": lambda store, _: write_rows(store, [row(1, 0)]),
    "series": lambda store, _: written(lambda done: store.write_series(announcement(0, name="a"), 0, done)),
    "holes": lambda store, _: written(lambda done: store.write_hole(HoleRecord(0, 0, 0, 1, "x", 0), done)),
    "loaded": lambda store, topic: written(lambda done: store.write_loaded(Loaded(topic, 0, 1, 1), done)),
}


@pytest.mark.parametrize("table", FULL)
def test_a_history_with_any_row_is_refused(saved: Ground, tmp_path: Path, table: str) -> None:
    FULL[table](saved.histories.open(), saved.log.topic_id(METRICS))
    refused(saved, tmp_path / "backup", InvalidRequest, "history_not_empty", f"rows of {table}; use a new")


def test_a_history_for_other_settings_is_refused(saved: Ground, tmp_path: Path) -> None:
    with HistoryFactory(f"sqlite:///{tmp_path}/other.db") as other:
        with other.admin() as admin:
            admin.create(shared_rows(MetaSettings(partitions=7)))
        with pytest.raises(ConfigMismatch, match="partitions: the backup has 3, history was made with 7"):
            saved.restore(tmp_path / "backup", saved.target(other))


def test_a_history_without_tables_is_refused_with_the_command_that_makes_them(saved: Ground, tmp_path: Path) -> None:
    with HistoryFactory(f"sqlite:///{tmp_path}/none.db") as missing:
        with pytest.raises(ConfigMismatch, match="tsdb history create"):
            saved.restore(tmp_path / "backup", saved.target(missing))
        assert not (tmp_path / "none.db").exists()


def test_another_log_is_refused(saved: Ground, tmp_path: Path) -> None:
    with ground(f"sqlite:///{tmp_path}/log2.db", f"sqlite:///{tmp_path}/history2.db") as other:
        refused(other, tmp_path / "backup", InvalidRequest, "other_log", "--detached")


def test_topics_that_were_made_anew_are_refused_without_from_zero(saved: Ground, tmp_path: Path) -> None:
    saved.logs.recreate(saved.logs.topics(), CHUNKS, 3)
    saved.log = saved.logs.open()
    refused(saved, tmp_path / "backup", InvalidRequest, "other_topic", "--from-zero")
    saved.restore(tmp_path / "backup", saved.target(), from_zero=True)
    assert saved.histories.open().epochs()


def test_a_running_loader_is_refused(saved: Ground, tmp_path: Path) -> None:
    with lone_member(saved.log, GROUP, [CHUNKS]):
        refused(saved, tmp_path / "backup", Unavailable, "group_in_use", "stop every loader first")


def test_a_backup_older_than_what_compaction_leaves_alone_is_refused(saved: Ground, tmp_path: Path) -> None:
    later_ms = saved.clock.now_ms() + 7 * DAY_MS
    saved.clock = ManualClock(later_ms - 3_600_000)
    refused(saved, tmp_path / "nothing", InvalidRequest, "no_manifest", "finishes it")
    saved.clock = ManualClock(later_ms + 3_600_000)
    refused(saved, tmp_path / "backup", InvalidRequest, "backup_too_old", "169.0 h ago.* 168.0 h .*--from-zero")
    saved.clock = ManualClock(later_ms - 3_600_000)
    saved.restore(tmp_path / "backup", saved.target())


def test_a_newer_format_is_refused(saved: Ground, tmp_path: Path) -> None:
    at = tmp_path / "backup" / "manifest.json"
    at.write_text(json.dumps({**json.loads(at.read_text()), "version": 2, "sha256": "of a later rule"}))
    refused(saved, tmp_path / "backup", UnknownVersion, "newer_backup", "version 2; this release reads 1")


class FailingStore:
    """A history that does not answer from its n-th scan on."""

    def __init__(self, store: ChunkStore, scans: int) -> None:
        self._store = store
        self.left = scans

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def scan(self, tokens: object) -> object:
        self.left -= 1
        if self.left < 0:
            raise Unavailable("history does not answer", reason="timeout")
        return self._store.scan(tokens)  # type: ignore[arg-type]


def test_an_interrupted_backup_is_refused_and_the_next_run_writes_the_rest(saved: Ground, tmp_path: Path) -> None:
    folder, store = BackupFolder(str(tmp_path / "second")), saved.histories.open()
    later = saved.append_windows(WINDOWS)
    saved.load(store, later)
    source = saved.source()
    failing = FailingStore(store, scans=9)
    with pytest.raises(Unavailable):
        back_up(folder, BackupSource(source.log, failing, source.admin, GROUP), saved.clock)  # type: ignore[arg-type]
    refused(saved, tmp_path / "second", InvalidRequest, "no_manifest", "`tsdb history backup` with the same folder")
    failing.left = 7
    made = back_up(folder, BackupSource(source.log, failing, source.admin, GROUP), saved.clock)  # type: ignore[arg-type]
    assert failing.left == 0, "finished parts are not read again"
    assert made == read_manifest(folder)
    held = {one.key: one.value for split in store.row_splits(1) for piece in store.scan(split) for one in piece}
    assert made.rows("chunks") == len(held)
    with pytest.raises(InvalidRequest, match="give a new folder") as error:
        saved.back_up(tmp_path / "second")
    assert error.value.reason == "folder_exists"


def test_a_folder_with_other_files_gets_no_backup(saved: Ground, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidRequest, match="files of something else") as error:
        saved.back_up(tmp_path / "home")
    assert error.value.reason == "folder_exists"
    assert [one.name for one in (tmp_path / "home").iterdir()] == ["letter.txt"]


def test_an_interrupted_backup_of_another_log_is_not_continued(saved: Ground, tmp_path: Path) -> None:
    (tmp_path / "backup" / "manifest.json").unlink()
    with ground(f"sqlite:///{tmp_path}/log2.db", f"sqlite:///{tmp_path}/history2.db") as other:
        with pytest.raises(InvalidRequest, match="began with the log of topic id") as error:
            other.back_up(tmp_path / "backup")
        assert error.value.reason == "other_log"


def test_a_place_that_is_no_folder_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"s3://bucket/folder") as error:
        BackupFolder("nonsense://x/y")
    assert error.value.reason == "bad_folder"
