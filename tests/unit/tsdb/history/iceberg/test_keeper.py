"""The keeper brings the samples of `chunks` into the table once, after any kill, and refuses tables of others."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles

from support.data.chunk_rows import random_rows
from support.data.chunk_topics import Entry, append_entries, chunk_entry, marker_entry
from support.data.table_rows import NAME, expected, fragments, labels_of, reopened, rows_of, settings_in
from support.servers.logs import LogFactory, wait_until
from tsdb.codec.chunk.key import ChunkKey, HoleKey, Kind, encode_key
from tsdb.codec.chunk.marker import HoleRecord, ProgressMarker, encode_hole
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.iceberg import keeper as keeper_module
from tsdb.history.iceberg.catalog import create_table, load_table, open_catalog
from tsdb.history.iceberg.emission import emit, is_conflict
from tsdb.history.iceberg.files import write_without
from tsdb.history.iceberg.keeper import KeeperOptions, TableKeeper, _Follower
from tsdb.history.iceberg.maintain import Joined, accept_losses, compact, expire
from tsdb.history.iceberg.state import LogCut, TableState, table_state
from tsdb.history.interface import ChunkRow
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch, Overloaded, TsdbError, Unavailable
from tsdb.model.time_set import PRODUCTION

PARTITIONS = 2


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(partitions=PARTITIONS)
        yield factory.open()


@pytest.fixture
def options(tmp_path: Path) -> KeeperOptions:
    settings = settings_in(tmp_path)
    with open_catalog(settings) as catalog:
        assert create_table(catalog, NAME, 2)
    return KeeperOptions(settings, PRODUCTION, interval_s=0.05)


def partition_of(row: ChunkRow) -> int:
    return row.key.pack_id % PARTITIONS


def announce(log: Log, rows: Sequence[ChunkRow]) -> None:
    """All series of these chunks, as a gateway does before it accepts a sample."""
    entries = []
    for row in rows:
        for (fragment,) in [fragments([row])]:
            for one in fragment.series_id.tolist():
                key, value = encode_announcement(one, 0, row.key.pack_id, labels_of(one))
                entries.append(Entry(SERIES, partition_of(row), key, value))
    append_entries(log, entries)


def emitted(rows: Iterable[ChunkRow]) -> list[Entry]:
    return [chunk_entry(partition_of(row), row.key, row.value) for row in rows]


def markers(log: Log, position: int) -> list[Entry]:
    topic_id = log.topic_id(METRICS)
    return [marker_entry(number, ProgressMarker(topic_id, position, 7 * position, 0)) for number in range(PARTITIONS)]


def follower(log: Log, options: KeeperOptions, keeper: str = "k") -> _Follower:
    return _Follower(log, options, SystemClock(), keeper)


def step(log: Log, options: KeeperOptions, keeper: str = "k") -> None:
    """One process that reads all there is, commits it, and is gone."""
    one = follower(log, options, keeper)
    try:
        one.step(lambda: False)
    finally:
        one.close()


def found_state(folder: Path) -> TableState:
    found = table_state(reopened(folder))
    assert found is not None
    return found


def is_whole(log: Log, folder: Path) -> bool:
    state = table_state(reopened(folder))
    ends = log.high_watermarks(CHUNKS, range(PARTITIONS))
    return state is not None and state.next_offsets == ends


class Running:
    """A keeper that ends with the block."""

    def __init__(self, log: Log, options: KeeperOptions) -> None:
        self.keeper = TableKeeper(log, options, SystemClock())

    def __enter__(self) -> TableKeeper:
        self.keeper.start()
        return self.keeper

    def __exit__(self, *raised: object) -> None:
        self.keeper.close()
        assert self.keeper.join(30.0)
        assert self.keeper.failure() is None


def test_the_table_has_exactly_the_samples_of_the_topic(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    rows = random_rows(1, packs=4, windows=4, samples=80)
    announce(log, rows)
    append_entries(log, [*emitted(rows), *markers(log, 500)])
    with Running(log, options):
        wait_until(lambda: is_whole(log, tmp_path))
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))
    state = found_state(tmp_path)
    assert state.cut == {number: LogCut(500, 3_500) for number in range(PARTITIONS)}
    assert (state.topic_id, state.chunks_id) == (log.topic_id(METRICS), log.topic_id(CHUNKS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kills_at_any_point_of_a_commit_lose_and_repeat_nothing(
    log: Log, options: KeeperOptions, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {seed}")
    generator = random.Random(seed)
    rows = random_rows(seed, packs=3, windows=3, samples=60)
    announce(log, rows)
    left = list(rows)
    while left:
        append_entries(log, emitted(left[:9]))
        del left[:9]
        kill = generator.choice(["before the commit", "after the commit", "no"])

        def killed(*arguments: object) -> object:
            if kill == "after the commit":  # noqa: B023  The function is gone before the next turn.
                emit(*arguments)  # type: ignore[arg-type]
            raise Unavailable("killed", reason="killed")

        if kill != "no":
            monkeypatch.setattr(keeper_module, "emit", killed)
            with pytest.raises(Unavailable, match="killed"):
                step(log, options)
            monkeypatch.setattr(keeper_module, "emit", emit)
        if kill != "after the commit":
            step(log, options)
    assert is_whole(log, tmp_path)
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))


def test_of_two_keepers_with_the_same_records_one_adds_them(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    rows = random_rows(2, packs=2, windows=2, samples=50)
    announce(log, rows)
    append_entries(log, emitted(rows))
    first, second = follower(log, options, "a"), follower(log, options, "b")
    first.step(lambda: False)
    with pytest.raises(Unavailable) as refused:
        second.step(lambda: False)
    assert is_conflict(refused.value)
    first.close()
    second.close()
    assert found_state(tmp_path).emission == 1
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))


@pytest.mark.slow
def test_two_keepers_side_by_side_leave_each_sample_once(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    rows = random_rows(3, packs=4, windows=4, samples=60)
    announce(log, rows)
    with Running(log, options), Running(log, options):
        for first in range(0, len(rows), 20):
            append_entries(log, emitted(rows[first : first + 20]))
            wait_until(lambda: is_whole(log, tmp_path))
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))


def test_a_beaten_keeper_stands_by_and_takes_over(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    rows = random_rows(4, packs=2, windows=3, samples=30)
    announce(log, rows)
    beaten = TableKeeper(log, options, SystemClock())
    beaten._beaten_by = 0
    append_entries(log, emitted(rows[:5]))
    step(log, options, "other")
    with pytest.raises(Unavailable) as standing_by:
        beaten._step()
    assert is_conflict(standing_by.value)
    beaten._forget()
    append_entries(log, emitted(rows[5:]))
    beaten._step()  # The other one has committed nothing since.
    beaten._forget()
    assert is_whole(log, tmp_path)
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))


def test_a_deleted_chunk_takes_nothing_out(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    rows = [row for row in random_rows(5, packs=1, windows=1) if row.key.kind != Kind.FOLDED]
    announce(log, rows)
    append_entries(log, emitted(rows))
    step(log, options)
    append_entries(log, [chunk_entry(partition_of(row), row.key, None) for row in rows])
    append_entries(log, markers(log, 9))
    step(log, options)
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))


def test_a_corrupt_chunk_is_a_named_hole_and_the_rest_goes_on(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    rows = random_rows(6, packs=1, windows=1, samples=30)
    announce(log, rows)
    bad = ChunkKey(8, 0, Kind.BASE, 5, 0)
    hole = HoleRecord(0, 0, 5, 10, "corrupt_record", 3)
    entries = [
        chunk_entry(0, bad, b"no chunk"),
        Entry(CHUNKS, 0, b"no key", b""),
        Entry(CHUNKS, 0, encode_key(HoleKey(0, 5, 10, 3)), encode_hole(hole)),
    ]
    append_entries(log, [*entries, *emitted(rows)])
    step(log, options)
    state = found_state(tmp_path)
    assert [one.reason for one in state.holes] == ["corrupt_chunk", "chunk_key", "corrupt_record"]
    assert (state.holes[0].pack_id, state.holes[0].end_ms) == (8, PRODUCTION.window_ms)
    assert state.holes_total == 3
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))


def test_a_cut_is_published_once_all_records_before_the_start_are_in(
    log: Log, options: KeeperOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction moves a chunk that is written again behind its marker."""
    rows = random_rows(7, packs=1, windows=1, samples=30)
    announce(log, rows)
    append_entries(log, [*emitted(rows[:3]), *markers(log, 5), *emitted(rows[3:])])
    monkeypatch.setattr(keeper_module, "POLL_RECORDS_MAX", 1)
    monkeypatch.setattr(keeper_module, "SAMPLES_MAX", 1)
    one = follower(log, options)
    one.step(lambda: False)
    assert found_state(tmp_path).cut == {}
    while not is_whole(log, tmp_path):
        one.step(lambda: False)
    one.close()
    assert set(found_state(tmp_path).cut) == set(range(PARTITIONS))


def test_records_that_retention_took_are_a_named_hole(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    class Trimmed:
        def __getattr__(self, name: str) -> object:
            return getattr(log, name)

        def watermarks(self, topic: str, partitions: Sequence[int]) -> object:
            marks = log.watermarks(topic, partitions)
            if topic == CHUNKS:
                marks[0] = type(marks[0])(3, marks[0].high)
            return marks

    rows = [row for row in random_rows(8, packs=3, windows=2, samples=30) if partition_of(row) == 0]
    announce(log, rows)
    append_entries(log, emitted(rows))
    step(Trimmed(), options)  # type: ignore[arg-type]
    (hole,) = found_state(tmp_path).holes
    assert (hole.partition, hole.reason, hole.record_offset) == (0, "chunks_trimmed", 3)
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows[3:]))


# A table that is not ours alone.


def refusal(log: Log, options: KeeperOptions) -> TsdbError:
    with pytest.raises(TsdbError) as refused:
        follower(log, options)
    return refused.value


def test_a_table_of_another_log_is_refused(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    append_entries(log, markers(log, 1))
    step(log, options)
    with LogFactory(f"sqlite:///{tmp_path}/other.db", "") as factory:
        factory.create(partitions=PARTITIONS)
        found = refusal(factory.open(), options)
    assert isinstance(found, ConfigMismatch)
    assert found.reason == "tables_other_log"
    assert "give another tables_name" in found.message


def test_a_commit_of_another_program_is_refused_until_it_is_rolled_back(log: Log, options: KeeperOptions) -> None:
    rows = random_rows(9, packs=1, windows=1, samples=30)
    announce(log, rows)
    append_entries(log, emitted(rows))
    step(log, options)
    with open_catalog(options.table) as catalog:
        table = load_table(catalog, NAME)
        ours = table.current_snapshot()
        assert ours is not None
        with table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass  # Rows or none: it is an append of another program.
        found = refusal(log, options)
        assert (type(found), found.reason) == (ConfigMismatch, "tables_changed")
        assert "roll the table back" in found.message
        table.manage_snapshots().rollback_to_snapshot(ours.snapshot_id).commit()
    follower(log, options).close()


def test_files_that_another_program_joined_are_no_change(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    """Spark's rewrite_data_files commits a snapshot of operation `replace`, also between a read and its commit."""
    rows = random_rows(11, packs=2, windows=2, samples=40)
    announce(log, rows)
    append_entries(log, emitted(rows[:8]))
    step(log, options)
    append_entries(log, emitted(rows[8:]))
    one = follower(log, options)
    replaced = rewrite(options)
    one.step(lambda: False)
    one.close()
    assert replaced
    assert is_whole(log, tmp_path)
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))


class Rewrite(_OverwriteFiles):
    """pyiceberg makes no snapshots of this operation itself."""

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006  The library's own default.
        return super()._summary(snapshot_properties).model_copy(update={"operation": Operation.REPLACE})


def rewrite(options: KeeperOptions) -> int:
    """Another program writes every file again, and puts nothing of ours into its snapshot. Returns their number."""
    with open_catalog(options.table) as catalog:
        table = load_table(catalog, NAME)
        files = [task.file for task in table.scan().plan_files()]
        with table.transaction() as transaction:
            update = Rewrite(Operation.OVERWRITE, transaction, table.io)
            with update as snapshot:
                for file in files:
                    again = write_without(table, file, np.empty(0, np.int64))
                    assert again is not None
                    snapshot.append_data_file(again)
                    snapshot.delete_data_file(file)
    return len(files)


def test_a_rewrite_behind_which_our_snapshot_is_expired_is_refused(log: Log, options: KeeperOptions) -> None:
    rows = random_rows(12, packs=1, windows=1, samples=30)
    announce(log, rows)
    append_entries(log, emitted(rows))
    step(log, options)
    rewrite(options)
    with open_catalog(options.table) as catalog:
        expire(catalog, NAME, datetime.now(UTC) + timedelta(seconds=1))
        follower(log, options).close()
        load_table(catalog, NAME).maintenance.expire_snapshots().older_than(datetime.now() + timedelta(1)).commit()
    found = refusal(log, options)
    assert (type(found), found.reason) == (ConfigMismatch, "tables_expired")


def test_a_compaction_between_read_and_commit_is_no_conflict(
    log: Log, options: KeeperOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(13, packs=2, windows=2, samples=40)
    announce(log, rows)
    for first in range(0, 12, 3):
        append_entries(log, emitted(rows[first : first + 3]))
        step(log, options)
    append_entries(log, emitted(rows[12:]))
    joined: list[Joined] = []

    def behind_a_compaction(*arguments: Any) -> Any:
        if not joined:
            with open_catalog(options.table) as catalog:
                joined.extend(compact(catalog, NAME, 2))
        return emit(*arguments)

    monkeypatch.setattr(keeper_module, "emit", behind_a_compaction)
    step(log, options)
    assert sum(one.files_before for one in joined) > len(joined) > 0
    assert is_whole(log, tmp_path)
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))


def test_a_loss_that_is_accepted_stays_accepted_and_is_no_conflict(
    log: Log, options: KeeperOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(14, packs=2, windows=3, samples=40)
    announce(log, rows)
    append_entries(log, [chunk_entry(partition_of(rows[0]), rows[0].key, b"no chunk"), *emitted(rows[1:3])])
    step(log, options)
    (hole,) = found_state(tmp_path).holes
    append_entries(log, emitted(rows[3:]))

    def behind_an_operator(*arguments: Any) -> Any:
        with open_catalog(options.table) as catalog:
            accept_losses(catalog, NAME, [hole])
        monkeypatch.setattr(keeper_module, "emit", emit)
        return emit(*arguments)

    monkeypatch.setattr(keeper_module, "emit", behind_an_operator)
    step(log, options)
    assert is_whole(log, tmp_path)
    append_entries(log, emitted(rows[:1]))
    step(log, options)
    assert [(one.hole, one.accepted) for one in found_state(tmp_path).losses()] == [(hole, True)]
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))


def test_a_missing_table_names_the_command_that_makes_it(log: Log, tmp_path: Path) -> None:
    found = refusal(log, KeeperOptions(settings_in(tmp_path), PRODUCTION))
    assert (found.reason, "tsdb tables create" in found.message) == ("tables_missing", True)
    follower(log, KeeperOptions(settings_in(tmp_path), PRODUCTION, create_buckets=2)).close()


def test_a_catalog_that_is_away_is_tried_again(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    path.rename(tmp_path / "moved.db")
    path.mkdir()
    found = refusal(log, options)
    assert (type(found), found.reason) == (Unavailable, "tables_unavailable")
    path.rmdir()
    (tmp_path / "moved.db").rename(path)
    follower(log, options).close()


def test_a_file_that_is_gone_is_named(log: Log, options: KeeperOptions, tmp_path: Path) -> None:
    rows = random_rows(10, packs=1, windows=1, samples=30)
    announce(log, rows)
    append_entries(log, emitted(rows))
    step(log, options)
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()
    append_entries(log, emitted(rows))
    one = follower(log, options)
    with pytest.raises(TsdbError, match="a file of the table is gone") as refused:
        one.step(lambda: False)
    one.close()
    assert refused.value.reason == "tables_files_missing"


def test_labels_over_their_limit_are_refused_by_name_before_anything_is_committed(
    log: Log, options: KeeperOptions, tmp_path: Path
) -> None:
    rows = random_rows(14, packs=1, windows=1, samples=30)
    announce(log, rows)
    append_entries(log, emitted(rows))
    with pytest.raises(Overloaded, match="tables_labels_bytes_max") as refused:
        step(log, replace(options, labels_bytes_max=500))
    assert refused.value.reason == "tables_labels_full"
    assert table_state(reopened(tmp_path)) is None
    step(log, options)
    assert rows_of(reopened(tmp_path)) == expected(fragments(rows))


def test_a_refusal_does_not_end_the_process(log: Log, tmp_path: Path) -> None:
    with Running(log, KeeperOptions(settings_in(tmp_path), PRODUCTION)) as keeper:
        wait_until(lambda: keeper.problem() is not None)
