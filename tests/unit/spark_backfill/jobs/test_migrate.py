"""A migration copies every row of a history while loaders go on, and says so only when both are equal to the bit."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import spark_backfill.jobs.migrate.copying as copying
import spark_backfill.jobs.migrate.job as job
from spark_backfill.jobs.migrate.compare import compare_histories
from spark_backfill.jobs.migrate.job import MigrateOptions, migrate
from spark_backfill.places import Places
from spark_backfill.result import MigrateResult
from spark_backfill.worker_log import close_worker_log
from support.backup.backups import PARTITIONS, WINDOWS, Ground
from support.backup.backups import ground as backup_ground
from support.counters import sample
from support.data.chunk_topics import Expected, append_entries, chunk_entry
from support.servers.histories import HistoryFactory, write_rows, written
from support.servers.loaders import assert_holds
from support.servers.logs import LogFactory
from support.spark.local_rows import LOCAL
from support.spark.pipelines import still
from tsdb.backup.restore import Begin, write_all
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.interface import ChunkRow, ChunkStore
from tsdb.history.loader.loader import GROUP
from tsdb.log.interface import META, METRICS
from tsdb.log.records import read_to_end
from tsdb.log.settings import LogSettings
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.errors import ConfigMismatch, InvalidRequest, TsdbError
from tsdb.model.meta import MetaSettings
from tsdb.model.window import EPOCH_MS

META_SETTINGS = MetaSettings(partitions=PARTITIONS)


class Move:
    """A loaded history, an empty one, and migrations between them."""

    def __init__(self, ground: Ground, first: Expected, target: HistoryFactory) -> None:
        self.ground = ground
        self.factory = target
        self.source: ChunkStore = ground.histories.open()
        self.target: ChunkStore = target.open()
        self.first = first
        self.loss = HoleRecord(1, 0, 0, 10, "corrupt_record", 3)
        written(lambda done: self.source.accept_hole(self.loss, done))

    def places(self, history: str) -> Places:
        settings = LogSettings(embedded_guest=True)
        return Places(self.ground.logs.url, self.ground.logs.prefix, history, settings)

    def run(self, job_id: str = "move", clock: Clock | None = None, *, back: bool = False) -> MigrateResult:
        """Migrate from the source to the target, or back."""
        urls = self.ground.histories.url, self.factory.url
        begin, end = reversed(urls) if back else urls
        return migrate(LOCAL, self.places(begin), META_SETTINGS, MigrateOptions(end, GROUP, job_id), clock)

    def notes(self) -> set[bytes]:
        """Keys of migrations that stand in `meta`."""
        found = {record.key: record.value for record in read_to_end(self.ground.log, META, 0) if record.key}
        return {key for key, value in found.items() if key.startswith(b"migration/") and value is not None}


@dataclass(frozen=True)
class Filled:
    """A folder with the files of a log and of a history that has its first windows; each test takes copies."""

    folder: Path
    prefix: str
    first: Expected


def urls(folder: Path) -> tuple[str, str]:
    """URLs of the log and the history."""
    return f"sqlite:///{folder}/log.db", f"sqlite:///{folder}/history.db"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    folder = tmp_path_factory.mktemp("filled")
    with backup_ground(*urls(folder)) as ground:
        first = ground.append_windows()
        ground.load(ground.histories.open(), first)
        return Filled(folder, ground.logs.prefix, first)


@pytest.fixture
def move(filled: Filled, tmp_path: Path) -> Iterator[Move]:
    shutil.copytree(filled.folder, tmp_path, dirs_exist_ok=True)
    log_url, history_url = urls(tmp_path)
    with (
        LogFactory(log_url, filled.prefix) as logs,
        HistoryFactory(history_url) as histories,
        HistoryFactory(f"sqlite:///{tmp_path}/target.db") as target,
    ):
        target.create()
        yield Move(Ground(logs, histories, logs.open(), SystemClock()), copy.deepcopy(filled.first), target)
        close_worker_log()


def killed(move: Move) -> None:
    """Kill a migration at its first write."""

    def kill(*of: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "write_all", kill)
        with pytest.raises(KeyboardInterrupt):
            move.run()


def rows(store: ChunkStore) -> dict[object, bytes]:
    pieces = (piece for split in store.row_splits(2) for piece in store.scan(split))
    return {row.key: row.value for piece in pieces for row in piece}


def series(store: ChunkStore) -> list[str]:
    return sorted(repr(row) for piece in store.scan_series() for row in piece)


def test_a_copy_has_every_row_and_its_loader_brings_what_came_since(move: Move) -> None:
    done = move.run()
    assert done.ok, done
    assert (done.chunks, done.series) == (len(move.first.rows), len(move.first.series))
    assert done.compared == done.chunks + done.series
    assert (done.missing, done.differing, done.extra, done.series_differing, done.refused) == (0, 0, 0, 0, 0)
    assert done.holes == len(move.first.holes) + 1
    assert rows(move.target) == rows(move.source)
    assert series(move.target) == series(move.source)
    ever = (None, -EPOCH_MS * 1000, EPOCH_MS * 1000)
    assert move.target.holes(*ever) == move.source.holes(*ever), "accepted ones are accepted there too"
    assert move.target.loaded(move.ground.log.topic_id(METRICS)) == {}, "its loader says when the rest is there"
    assert move.notes() == set(), "a finished migration leaves no note"
    later = move.ground.append_windows(WINDOWS)
    before = sample("tsdb_loader_records_total", kind="chunk")
    move.ground.load(move.target, later)
    move.first.holes.append(move.loss)
    assert_holds(move.target, move.ground.log, move.first.later(later))
    assert sample("tsdb_loader_records_total", kind="chunk") - before < len(move.first.rows) + len(later.rows)


def test_a_history_that_was_moved_is_moved_back(move: Move) -> None:
    whole = rows(move.source), series(move.source)
    assert move.run().ok
    move.ground.load(move.target, move.first)
    move.source.close()
    move.ground.histories.empty()
    done = move.run("back", back=True)
    assert done.ok, done
    again = move.ground.histories.open()
    assert (rows(again), series(again)) == whole


def test_a_migration_that_is_killed_five_times_copies_each_finished_part_once(
    move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = move.run("whole").items
    move.target.close()
    move.factory.empty()
    begun: list[int] = []
    kill_at = 0

    def write(begins: list[Begin], clock: Clock) -> None:
        if len(begun) == kill_at:
            raise KeyboardInterrupt
        write_all(begins, clock)
        begun.append(len(begins))

    monkeypatch.setattr(copying, "write_all", write)
    for kill in range(1, 6):  # There are seven parts with rows: all chunks, and the series of each name and epoch.
        kill_at = kill
        with pytest.raises(KeyboardInterrupt):
            move.run()
    kill_at = -1
    done = move.run()
    assert done.ok, done
    assert (done.items, done.chunks) == (parts, len(move.first.rows))
    assert done.items_before >= 10
    assert sum(begun) == done.chunks + done.series, "no group is written again"


def test_rows_that_come_and_go_during_the_copy_are_no_differences(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    later = move.ground.append_windows(WINDOWS)
    gone = sorted(move.first.rows, key=str)[0]

    def write(begins: list[Begin], clock: Clock) -> None:
        monkeypatch.setattr(copying, "write_all", write_all)
        write_all(begins, clock)
        # A record names the row on `chunks`; a loader of the source deletes it, and one of the target will.
        append_entries(move.ground.log, [chunk_entry(0, gone, None)])
        move.ground.load(move.source, later)
        written(lambda done: move.source.delete_covered([gone], done))

    monkeypatch.setattr(copying, "write_all", write)
    done = move.run()
    assert done.ok, done
    assert gone not in rows(move.source)
    move.ground.load(move.target, later)
    assert rows(move.target) == rows(move.source)


def _damage(store: ChunkStore, expected: Expected) -> None:
    one, other, *_ = sorted(expected.rows, key=str)
    written(lambda done: store.delete_covered([one], done))
    write_rows(store, [ChunkRow(other, expected.rows[one]), ChunkRow(replace(one, order=77), expected.rows[one])])


def test_differences_are_named_and_the_next_run_mends_what_it_can(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*of: object) -> object:
        _damage(move.target, move.first)
        return compare_histories(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(job, "compare_histories", damaged)
    done = move.run()
    assert not done.ok
    assert (done.missing, done.differing, done.extra) == (1, 1, 1)
    assert sorted((row.place, row.problem) for row in done.rows) == [
        ("target", "differing"),
        ("target", "extra"),
        ("target", "missing"),
    ]
    monkeypatch.setattr(job, "compare_histories", compare_histories)
    again = move.run()
    assert (again.missing, again.differing, again.extra) == (0, 0, 1), "the extra row is somebody's"
    assert again.items_before == 0


def test_a_row_that_does_not_decode_is_counted_and_not_copied(move: Move) -> None:
    key = sorted(move.first.rows, key=str)[0]
    write_rows(move.source, [ChunkRow(key, b"\x00 is no chunk")])
    done = move.run()
    assert (done.ok, done.refused, done.missing) == (False, 1, 1)
    assert key not in rows(move.target)


def test_after_longer_than_chunks_keeps_every_record_a_loader_begins_at_its_first(move: Move) -> None:
    now_ms = SystemClock().now_ms()
    killed(move)
    done = move.run(clock=still(now_ms + 100 * 24 * 3600 * 1000))
    assert done.ok
    assert not done.loader_goes_on
    move.first.holes.append(move.loss)
    move.ground.load(move.target, move.first)
    assert_holds(move.target, move.ground.log, move.first)


def _same(move: Move) -> None:
    migrate(LOCAL, move.places(move.factory.url), META_SETTINGS, MigrateOptions(move.factory.url, GROUP, "one"))


def _full(move: Move) -> None:
    write_rows(move.target, [ChunkRow(*next(iter(move.first.rows.items())))])
    move.run()


def _not_made(move: Move) -> None:
    url = move.factory.url.replace("target", "nothing")
    migrate(LOCAL, move.places(move.ground.histories.url), META_SETTINGS, MigrateOptions(url, GROUP, "one"))


def _other_settings(move: Move) -> None:
    places = move.places(move.ground.histories.url)
    migrate(LOCAL, places, MetaSettings(partitions=7), MigrateOptions(move.factory.url, GROUP, "one"))


def _other_pair(move: Move) -> None:
    killed(move)
    move.run(back=True)


def _replaced(move: Move) -> None:
    killed(move)
    move.source.close()
    move.ground.histories.empty()
    move.run()


@pytest.mark.parametrize(
    ("attempt", "kind", "reason"),
    [
        (_same, InvalidRequest, "same_history"),
        (_full, InvalidRequest, "history_not_empty"),
        (_not_made, ConfigMismatch, "history_schema"),
        (_other_settings, ConfigMismatch, "history_schema"),
        (_other_pair, ConfigMismatch, "other_migration"),
        (_replaced, InvalidRequest, "history_replaced"),
    ],
)
def test_a_migration_that_cannot_be_whole_is_refused_before_it_writes(
    move: Move, attempt: Callable[[Move], None], kind: type[TsdbError], reason: str
) -> None:
    with pytest.raises(kind) as refused:
        attempt(move)
    assert refused.value.reason == reason
