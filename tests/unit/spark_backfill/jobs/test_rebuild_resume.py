"""A rebuild that was interrupted goes on where it ended: equal records, and no finished item is built twice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import spark_backfill.jobs.rebuild.job as job
from spark_backfill.building.build import build
from spark_backfill.building.items import BaseItem, Item, LateItem
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.plan import plan_partitions
from spark_backfill.jobs.rebuild.job import rebuild
from spark_backfill.jobs.rebuild.resume import HistoryItem, RebuildItem, begin_rebuild, item_key
from spark_backfill.places import Places
from spark_backfill.worker_log import close_worker_log
from support.data.recorded_log import BASE_MS, RecordedLog
from support.servers.logs import LogFactory
from support.spark.local_rows import LOCAL
from support.spark.pipelines import build_options, still
from tsdb.chunks.late_scan import Windows
from tsdb.log.interface import CHUNKS, META, METRICS, Log
from tsdb.log.records import read_to_end
from tsdb.log.topics import CREATE_TIME
from tsdb.model.errors import ConfigMismatch, InvalidRequest, UnknownVersion
from tsdb.model.time_set import DEMO
from tsdb.model.window import ceil_to

PARTITIONS = 2
RECORDED = RecordedLog(PARTITIONS, windows=6)
FIRST_MS = ceil_to(BASE_MS, DEMO.window_ms)
RANGE = Windows(FIRST_MS, FIRST_MS + 4 * DEMO.window_ms)


class Ground:
    """A recorded log, the items that were built, and a kill at the begin of a chosen one."""

    def __init__(self, logs: LogFactory, patch: pytest.MonkeyPatch) -> None:
        self.log: Log = logs.open(clock=still(RECORDED.end_ms))
        self.options: BuildOptions = build_options(self.log, Places(log=logs.url))
        self.built: list[Item] = []
        self.kill_at: int | None = None

        def counted(item: Item, *rest: object) -> Iterator[object]:
            for number, record in enumerate(build(item, *rest)):  # type: ignore[arg-type]
                if number == 0 and len(self.built) == self.kill_at:
                    raise KeyboardInterrupt
                yield record
            self.built.append(item)

        patch.setattr(job, "build", counted)

    def chunks(self) -> dict[tuple[int, bytes], bytes | None]:
        """The last record of each key of `chunks`."""
        return {
            (partition, record.key or b""): record.value
            for partition in range(PARTITIONS)
            for record in read_to_end(self.log, CHUNKS, partition)
        }

    def notes(self) -> dict[bytes, bytes]:
        """Records of rebuilds that stand in `meta`."""
        found = {record.key: record.value for record in read_to_end(self.log, META, 0) if record.key is not None}
        return {key: value for key, value in found.items() if key.startswith(b"rebuild/") and value is not None}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a recorded log, of which each test takes copies."""
    folder = tmp_path_factory.mktemp("recorded")
    with LogFactory(f"sqlite:///{folder}/log.db", "") as logs:
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        RECORDED.write(logs.open(clock=still(RECORDED.end_ms)))
    return folder


@pytest.fixture
def ground(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    with LogFactory(f"sqlite:///{tmp_path / 'log.db'}", "") as logs:
        yield Ground(logs, monkeypatch)
        close_worker_log()


@pytest.mark.slow
def test_a_rebuild_that_is_killed_five_times_builds_each_item_once(ground: Ground) -> None:
    whole = rebuild(LOCAL, ground.options, RANGE)
    wanted, items = ground.chunks(), list(ground.built)
    assert len(items) == whole.items >= 10
    ground.built.clear()
    for kill in range(1, 6):
        ground.kill_at = kill * len(items) // 6
        with pytest.raises(KeyboardInterrupt):
            rebuild(LOCAL, ground.options, RANGE, job_id="month")
        assert len(ground.built) == ground.kill_at
        # The log grows meanwhile; the items stay those of the first run.
        ground.log.append_sync(METRICS, kill % PARTITIONS, b"", timestamp_ms=RECORDED.end_ms + kill * DEMO.window_ms)
    ground.kill_at = None
    done = rebuild(LOCAL, ground.options, RANGE, job_id="month")
    assert sorted(map(repr, ground.built)) == sorted(map(repr, items)), "each item was built once"
    assert done == replace(whole, job_id="month", items_before=5 * len(items) // 6)
    assert ground.chunks() == wanted
    assert ground.notes() == {}, "a finished rebuild leaves no note"


def test_a_finished_id_begins_anew(ground: Ground) -> None:
    first = rebuild(LOCAL, ground.options, RANGE, job_id="twice")
    ground.built.clear()
    assert rebuild(LOCAL, ground.options, RANGE, job_id="twice") == first
    assert len(ground.built) == first.items


def test_a_note_of_a_task_that_outlived_its_job_is_not_of_a_later_job(ground: Ground) -> None:
    ground.kill_at = 2
    with pytest.raises(KeyboardInterrupt):
        rebuild(LOCAL, ground.options, RANGE, job_id="twice")
    late = ground.notes()
    ground.kill_at = None
    first = rebuild(LOCAL, ground.options, RANGE, job_id="twice")
    for key, value in late.items():
        if b"/plan/" not in key:
            ground.log.append_sync(META, 0, value, key=key)
    ground.built.clear()
    again = rebuild(LOCAL, ground.options, RANGE, job_id="twice")
    assert len(ground.built) == again.items == first.items
    assert again.items_before == 0
    assert ground.notes() == {}


def test_an_id_stands_for_one_range_and_its_packs(ground: Ground) -> None:
    ground.kill_at = 3
    with pytest.raises(KeyboardInterrupt):
        rebuild(LOCAL, ground.options, RANGE, job_id="one")
    for windows, packs in ((Windows(RANGE.start_ms, RANGE.end_ms - DEMO.window_ms), None), (RANGE, {77})):
        with pytest.raises(ConfigMismatch, match="a job id stands for one work") as refused:
            rebuild(LOCAL, ground.options, windows, packs, "one")
        assert refused.value.reason == "other_rebuild"
    with pytest.raises(InvalidRequest) as bad:
        rebuild(LOCAL, ground.options, RANGE, job_id="a/b")
    assert bad.value.reason == "bad_job_id"
    ground.kill_at = None
    assert rebuild(LOCAL, ground.options, RANGE, {77}, "other").items_before == 0, "another id is another rebuild"


def test_of_two_first_runs_at_once_both_have_the_plan_that_came_first(ground: Ground) -> None:
    found = plan_partitions(ground.log, RANGE, DEMO)
    later = [replace(one, late_end=one.late_end + 7, late_end_ms=one.late_end_ms + 7) for one in found]
    first = begin_rebuild(ground.log, "both", "range", found)
    second = begin_rebuild(ground.log, "both", "range", later)
    assert first.limited(later) == second.limited(later) == found


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"{", ConfigMismatch),
        (b"[]", ConfigMismatch),
        (b'{"version": 1}', ConfigMismatch),
        (b'{"version": 1, "counts": [1, 1, 1, 1]}', ConfigMismatch),
        (b'{"version": 1, "plan": "PLAN", "counts": [1, "x"]}', ConfigMismatch),
        (b'{"version": 1, "plan": "PLAN", "counts": 7}', ConfigMismatch),
        (b'{"version": 2}', UnknownVersion),
    ],
)
def test_a_damaged_note_is_refused(ground: Ground, value: bytes, error: type[Exception]) -> None:
    run = begin_rebuild(ground.log, "bad", "range", plan_partitions(ground.log, RANGE, DEMO))
    note = value.replace(b"PLAN", run.notes.plan.encode())
    ground.log.append_sync(META, 0, note, key=b"rebuild/bad/base/0/0")
    with pytest.raises(error, match="rebuild bad"):
        begin_rebuild(ground.log, "bad", "range", [])


def test_a_damaged_plan_is_refused(ground: Ground) -> None:
    topic_id = ground.log.topic_id(METRICS)
    value = f'{{"version": 1, "topic_id": "{topic_id}", "fingerprint": "range", "ends": {{"0": 7}}}}'
    ground.log.append_sync(META, 0, value.encode(), key=b"rebuild/bad/plan/0")
    with pytest.raises(ConfigMismatch, match="does not parse"):
        begin_rebuild(ground.log, "bad", "range", [])


def test_keys_of_items_differ() -> None:
    items: list[RebuildItem] = [
        BaseItem(0, 0, 400),
        BaseItem(1, 0, 400),
        BaseItem(0, 400, 800),
        LateItem(0, 0, 400),
        LateItem(0, 0, 800),
        HistoryItem(Windows(0, 400), 0, 2),
        HistoryItem(Windows(0, 400), 1, 2),
        HistoryItem(Windows(400, 800), 1, 2),
    ]
    assert len({item_key(one) for one in items}) == len(items)
