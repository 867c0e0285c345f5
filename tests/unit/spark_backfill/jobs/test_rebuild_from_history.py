"""A rebuild takes the windows that the log no longer has from history, and writes the same records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import spark_backfill.jobs.rebuild.from_history as from_history
from spark_backfill.building.plan import first_whole_ms
from spark_backfill.jobs.rebuild.job import rebuild
from spark_backfill.jobs.rebuild.resume import HistoryItem, Rebuilt
from spark_backfill.jobs.rebuild.resume import note as real_note
from spark_backfill.worker_log import close_worker_log
from support.servers.histories import HistoryFactory, write_rows
from support.servers.logs import LogFactory
from support.spark.local_rows import LOCAL
from support.spark.pipelines import build_options
from support.spark.spark import places
from support.spark.trimmed_log import FIRST_MS, RANGE, RECORDED, TrimmedGround, of_history, of_log
from tsdb.codec.chunk.key import ChunkKey, Kind, WindowKey, decode_key
from tsdb.history.interface import ChunkRow
from tsdb.log.interface import Log
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.model.time_set import DEMO


def factories(folder: Path) -> tuple[LogFactory, HistoryFactory]:
    return LogFactory(f"sqlite:///{folder}/log.db", ""), HistoryFactory(f"sqlite:///{folder}/h.db")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a log and a history, of which each test takes copies."""
    folder = tmp_path_factory.mktemp("filled")
    logs, histories = factories(folder)
    with logs, histories:
        TrimmedGround.fill(logs, histories)
    return folder


@pytest.fixture
def ground(filled: Path, tmp_path: Path) -> Iterator[TrimmedGround]:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    logs, histories = factories(tmp_path)
    with logs, histories:
        yield TrimmedGround(logs, histories)
        close_worker_log()


def test_windows_before_the_log_come_from_history_and_later_ones_from_the_log(ground: TrimmedGround) -> None:
    seam_ms = first_whole_ms(ground.log, DEMO)
    assert RANGE.start_ms < seam_ms < RANGE.end_ms
    before = ground.ends()
    done = rebuild(LOCAL, ground.options, RANGE)
    older, newer = of_history(ground.wanted, seam_ms), of_log(ground.wanted, seam_ms)
    assert ground.records(before) == older | newer
    assert {decode_key(key).kind for _, key in older if isinstance(decode_key(key), ChunkKey)} >= {  # type: ignore[union-attr]
        Kind.BASE,
        Kind.LATE,
        Kind.IMPORT,
    }
    assert (done.ok, done.log_from_ms, done.history_chunks, done.holes) == (True, seam_ms, len(older) - 1, 1)
    assert done.windows == sum(isinstance(decode_key(key), WindowKey) for _, key in newer)


def test_a_range_that_the_log_has_lost_whole_comes_from_history_alone(ground: TrimmedGround) -> None:
    ground.trim(RECORDED.records - 1)
    assert first_whole_ms(ground.log, DEMO) >= RANGE.end_ms
    assert ground.written_by() == of_history(ground.wanted, RANGE.end_ms)


@pytest.mark.parametrize("trimmed", [False, True], ids=["same log", "log trimmed meanwhile"])
def test_a_rebuild_that_was_killed_goes_on_in_history(
    ground: TrimmedGround, monkeypatch: pytest.MonkeyPatch, trimmed: bool
) -> None:
    noted: list[HistoryItem] = []

    def note(notes: object, log: Log, item: HistoryItem, done: Rebuilt) -> None:
        if len(noted) == 5:
            raise KeyboardInterrupt
        noted.append(item)
        real_note(notes, log, item, done)  # type: ignore[arg-type]

    monkeypatch.setattr(from_history, "note", note)
    begun = ground.ends()
    with pytest.raises(KeyboardInterrupt):
        rebuild(LOCAL, ground.options, RANGE, job_id="month")
    first = list(noted)
    monkeypatch.setattr(from_history, "note", real_note)
    seam_ms = first_whole_ms(ground.log, DEMO)
    if trimmed:
        ground.trim(RECORDED.records - 1)
    copied: list[HistoryItem] = []
    monkeypatch.setattr(from_history, "note", lambda notes, log, item, done: copied.append(item))
    done = rebuild(LOCAL, ground.options, RANGE, job_id="month")
    assert not set(copied) & set(first), "no finished item is copied again"
    assert done.items_before >= len(first)
    whole = of_history(ground.wanted, RANGE.end_ms if trimmed else seam_ms) | of_log(ground.wanted, seam_ms)
    assert ground.records(begun) == whole


def test_a_row_that_does_not_decode_is_counted_and_not_written(ground: TrimmedGround) -> None:
    key = next(decode_key(key) for _, key in of_history(ground.wanted, FIRST_MS + DEMO.window_ms) if _chunk(key))
    assert isinstance(key, ChunkKey)
    write_rows(ground.history, [ChunkRow(key, b"\x00 is no chunk")])
    before = ground.ends()
    done = rebuild(LOCAL, ground.options, RANGE)
    assert (done.ok, done.refused) == (False, 1)
    assert b"\x00 is no chunk" not in ground.records(before).values()


def _chunk(key: bytes) -> bool:
    return isinstance(decode_key(key), ChunkKey)


def test_history_that_lacks_windows_is_refused_before_a_row_is_copied(tmp_path: Path, ground: TrimmedGround) -> None:
    ground.trim(RECORDED.records - 1)
    ground.load_through(RANGE.end_ms)
    with HistoryFactory(f"sqlite:///{tmp_path}/empty.db") as other:
        other.create()
        with LogFactory(ground.options.places.log, "") as logs:
            options = build_options(ground.log, places(logs, other))
        before = ground.ends()
        with pytest.raises(Unavailable, match="look whether a loader runs") as refused:
            rebuild(LOCAL, options, RANGE)
        assert (refused.value.reason, ground.ends()) == ("history_behind", before)


def test_without_a_history_the_range_is_refused(ground: TrimmedGround) -> None:
    alone = replace(ground.options, places=replace(ground.options.places, history=""))
    with pytest.raises(LostOffsets) as refused:
        rebuild(LOCAL, alone, RANGE)
    assert refused.value.reason == "before_retention"


def test_chosen_packs_alone_are_copied(ground: TrimmedGround) -> None:
    ground.trim(RECORDED.records - 1)
    chosen = next(key.pack_id for _, text in ground.wanted if isinstance(key := decode_key(text), ChunkKey))
    before = ground.ends()
    rebuild(LOCAL, ground.options, RANGE, {chosen})
    packs = {getattr(decode_key(key), "pack_id", None) for _, key in ground.records(before)}
    assert packs == {chosen}
