"""Maintenance changes files and never samples, beside a keeper too, and leaves the state of the table as it is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationException

from support.data.chunk_rows import random_rows
from support.data.table_rows import NAME, expected, fragments, known_labels, new_table, rows_of, settings_in, state
from support.oracles.fragment_twin import fragment_of
from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.iceberg import maintain
from tsdb.history.iceberg import rows as rows_module
from tsdb.history.iceberg.catalog import load_table, open_catalog
from tsdb.history.iceberg.emission import commit_files, emit
from tsdb.history.iceberg.maintain import compact, expirable, expire
from tsdb.history.iceberg.state import table_state
from tsdb.model.errors import ConfigMismatch

NOW = datetime.now(UTC)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(settings_in(tmp_path)) as catalog:
        new_table(catalog, 2)
        yield catalog


def filled(catalog: Catalog, seed: int, emissions: int = 6) -> list[Fragment]:
    """Fill the table in several emissions. Returns their fragments."""
    some = fragments(random_rows(seed, packs=3, windows=3, samples=60))
    random.Random(seed).shuffle(some)
    for number in range(emissions):
        emit(load_table(catalog, NAME), some[number::emissions], known_labels, state(number + 1))
    return some


def files_of(catalog: Catalog) -> list[str]:
    found = load_table(catalog, NAME).scan().plan_files()
    return sorted(task.file.file_path.removeprefix("file://") for task in found)


@pytest.mark.slow
@pytest.mark.parametrize("block_rows", [7, 100_000])
def test_joined_files_have_the_same_samples_in_order(
    catalog: Catalog, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "BLOCK_ROWS", block_rows)
    some = filled(catalog, 1)
    before = len(files_of(catalog))
    joined = list(compact(catalog, NAME, 2))
    assert [(one.files_after, one.skipped) for one in joined] == [(1, False)] * len(joined)
    assert len(files_of(catalog)) == before - sum(one.files_before - 1 for one in joined) == 2
    assert rows_of(load_table(catalog, NAME)) == expected(some)
    assert table_state(load_table(catalog, NAME)) == state(6)
    for path in files_of(catalog):
        found = pq.read_table(path, columns=["metric", "series_id", "ts"])
        keys = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        assert keys == sorted(keys)
    assert list(compact(catalog, NAME, 2)) == []


def test_a_late_sample_after_a_compaction_replaces_its_older_version(catalog: Catalog) -> None:
    some = filled(catalog, 2)
    list(compact(catalog, NAME, 2))
    (series, ts_ms), _ = next(iter(expected(some).items()))
    late = fragment_of({(series, ts_ms): (10_000, 1)}, window_start_ms=ts_ms - ts_ms % 14_400_000)
    emit(load_table(catalog, NAME), [late], known_labels, state(7))
    assert rows_of(load_table(catalog, NAME)) == expected([*some, late])


def test_a_large_result_is_cut_into_files(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    some = filled(catalog, 3)
    monkeypatch.setattr(maintain, "BLOCK_ROWS", 64)
    monkeypatch.setattr(maintain, "FILE_BYTES_TARGET", 2_000)
    assert max(one.files_after for one in compact(catalog, NAME, 2)) > 1
    assert rows_of(load_table(catalog, NAME)) == expected(some)


def test_files_with_small_row_groups_are_joined_at_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "EMITTED_BLOCK_ROWS", 8)
    some = filled(catalog, 9)
    files = [task.file for task in load_table(catalog, NAME).scan().plan_files()]
    monkeypatch.setattr(maintain, "ROWS_AT_ONCE_MAX", 16 * len(files))
    assert sum(file.record_count for file in files) > 2 * 16 * len(files), "whole files would not fit"
    assert [one.files_after for one in compact(catalog, NAME, 2)] == [1, 1]
    assert rows_of(load_table(catalog, NAME)) == expected(some)


def test_losses_that_are_not_named_are_accepted_by_their_number() -> None:
    named = HoleRecord(0, 5, 10, 20, "corrupt_chunk", 3)
    one = replace(state(1), holes=(named,), holes_total=3)
    all_accepted = one.accepting(loss.hole for loss in one.losses())
    assert [loss.accepted for loss in all_accepted.losses()] == [True, True]
    assert [loss.accepted for loss in replace(all_accepted, holes_total=4).losses()] == [True, False]


def test_a_commit_of_the_keeper_in_between_is_kept(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    some = filled(catalog, 4)
    more = fragment_of({(7, 5): (9, 1)})
    commits: list[object] = []

    def first_the_keeper(*arguments: object) -> None:
        if not commits:
            commits.append(emit(load_table(catalog, NAME), [more], known_labels, state(7)))
        commit_files(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(maintain, "commit_files", first_the_keeper)
    assert not any(one.skipped for one in compact(catalog, NAME, 2))
    assert rows_of(load_table(catalog, NAME)) == expected([*some, more])
    assert table_state(load_table(catalog, NAME)) == state(7)


@pytest.mark.slow
def test_files_that_the_keeper_replaced_meanwhile_are_left(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    some = filled(catalog, 5)
    newer = [fragment_of({key: (10_000, 1)}, window_start_ms=key[1] - key[1] % 14_400_000) for key in expected(some)]
    commits: list[object] = []

    def first_the_keeper(*arguments: object) -> None:
        if not commits:
            commits.append(emit(load_table(catalog, NAME), newer, known_labels, state(7)))
        commit_files(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(maintain, "commit_files", first_the_keeper)
    assert all(one.skipped for one in compact(catalog, NAME, 2))
    assert rows_of(load_table(catalog, NAME)) == expected([*some, *newer])


def test_a_table_of_another_program_is_not_compacted(catalog: Catalog) -> None:
    filled(catalog, 6)
    with load_table(catalog, NAME).transaction() as change, change.update_snapshot().fast_append():
        pass
    with pytest.raises(ConfigMismatch, match="another program"):
        list(compact(catalog, NAME, 2))


@pytest.mark.slow
def test_expiry_deletes_the_files_of_old_snapshots_alone(catalog: Catalog, tmp_path: Path) -> None:
    some = filled(catalog, 7)
    list(compact(catalog, NAME, 2))
    table = load_table(catalog, NAME)
    assert expirable(table, NOW - timedelta(hours=1)).snapshots == []
    found = expire(catalog, NAME, datetime.now(UTC) + timedelta(seconds=1))
    assert len(found.snapshots) == len(table.metadata.snapshots) - 1
    left = sorted(str(path) for path in tmp_path.rglob("*.parquet"))
    assert left == files_of(catalog)
    assert rows_of(load_table(catalog, NAME)) == expected(some)
    assert table_state(load_table(catalog, NAME)) == state(6)
    emit(load_table(catalog, NAME), some[:3], known_labels, state(7))
    assert rows_of(load_table(catalog, NAME)) == expected(some)


def test_a_snapshot_with_a_tag_stays_readable(catalog: Catalog) -> None:
    filled(catalog, 8, emissions=2)
    table = load_table(catalog, NAME)
    first = table.metadata.snapshots[0].snapshot_id
    before = table.scan(snapshot_id=first).to_arrow().num_rows
    table.manage_snapshots().create_tag(first, "month").commit()
    list(compact(catalog, NAME, 2))
    expire(catalog, NAME, datetime.now(UTC) + timedelta(seconds=1))
    assert load_table(catalog, NAME).scan(snapshot_id=first).to_arrow().num_rows == before


def test_an_expired_snapshot_is_an_error_of_its_reader(catalog: Catalog) -> None:
    filled(catalog, 9, emissions=2)
    first = load_table(catalog, NAME).metadata.snapshots[0].snapshot_id
    expire(catalog, NAME, datetime.now(UTC) + timedelta(seconds=1))
    with pytest.raises((ValueError, ValidationException), match="Snapshot not found"):
        load_table(catalog, NAME).scan(snapshot_id=first).to_arrow()
