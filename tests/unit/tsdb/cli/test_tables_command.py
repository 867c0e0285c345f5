"""`tsdb tables` makes the Iceberg table once, prints what it holds, and refuses a table that differs."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from support.cli import Shell
from support.data.chunk_rows import random_rows
from support.data.table_rows import NAME, expected, fragments, known_labels, rows_of, state
from support.oracles.fragment_twin import fragment_of
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.iceberg.catalog import TableSettings, load_table, open_catalog, series_table
from tsdb.history.iceberg.emission import emit
from tsdb.history.iceberg.state import TableState, table_state


@pytest.fixture
def tables(tmp_path: Path) -> tuple[str, ...]:
    return ("--tables", f"sqlite:///{tmp_path}/catalog.db")


def test_the_table_is_made_once(shell: Shell, tables: tuple[str, ...], tmp_path: Path) -> None:
    made = shell.ok("tables", "create", *tables, "--buckets", 2, "--output", "json").json
    assert (made["made"], made["table"]) == (True, "tsdb.samples")
    assert made["location"] == f"file://{tmp_path}/catalog-files/tsdb/samples"
    assert shell.ok("tables", "create", *tables, "--output", "json").json["made"] is False
    text = shell.ok("tables", "create", *tables, "--tables-name", "metrics.all", "--tables-warehouse", tmp_path / "w")
    assert text.text.startswith(f"made table metrics.all in file://{tmp_path}/w/metrics/all\nnext: tsdb loader ")


def test_the_content_is_printed(shell: Shell, tables: tuple[str, ...], tmp_path: Path) -> None:
    shell.ok("tables", "create", *tables)
    empty = shell.ok("tables", "check", *tables, "--output", "json").json
    assert (empty["emission"], empty["samples"], empty["cut"], empty["snapshot"]) == (0, 0, {}, None)
    assert "the table is empty" in shell.ok("tables", "check", *tables).err
    some = fragments(random_rows(1, packs=1, windows=1))
    with open_catalog(TableSettings(tables[1])) as catalog:
        emit(load_table(catalog, NAME), some, known_labels, state(1))
    found = shell.ok("tables", "check", *tables, "--output", "json").json
    assert (found["emission"], found["samples"], found["holes"]) == (1, len(expected(some)), 0)
    assert found["cut"] == {"0": {"position": 100, "emitted_through_ms": 1_000}}
    assert Path(found["metadata"].removeprefix("file://")).exists()
    printed = shell.ok("tables", "check", *tables)
    assert "1970-01-01T00:00:01" in printed.text
    assert f"emission 1: {len(expected(some))} samples in " in printed.err


def test_a_missing_table_and_a_different_one_are_failures(shell: Shell, tables: tuple[str, ...]) -> None:
    missing = shell.run("tables", "check", *tables)
    assert (missing.code, "`tsdb tables create` makes the table" in missing.err) == (1, True)
    shell.ok("tables", "create", *tables)
    with open_catalog(TableSettings(tables[1])) as catalog:
        table = catalog.load_table(NAME)
        with table.update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("tenant")
    differs = shell.run("tables", "check", *tables)
    assert (differs.code, "column tenant is missing" in differs.err) == (1, True)
    with open_catalog(TableSettings(tables[1])) as catalog, catalog.load_table(NAME).transaction() as transaction:
        transaction.remove_properties("tsdb.format")
    assert "property tsdb.format is None, want 1" in shell.run("tables", "create", *tables).err


def test_a_column_that_somebody_added_may_stay(shell: Shell, tables: tuple[str, ...]) -> None:
    from pyiceberg.types import StringType

    shell.ok("tables", "create", *tables)
    some = fragments(random_rows(2, packs=1, windows=1))
    with open_catalog(TableSettings(tables[1])) as catalog:
        with catalog.load_table(NAME).update_schema() as change:
            change.add_column("team", StringType())
        emit(load_table(catalog, NAME), some, known_labels, state(1))
        found = load_table(catalog, NAME).scan().to_arrow()
    assert found["team"].null_count == len(expected(some))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tables", "mysql://x"), "is neither sqlite:///PATH nor pyiceberg://NAME"),
        (("--tables", "sqlite:///x", "--tables-name", "samples"), "tables_name"),
        (("--tables", "pyiceberg://no-such-catalog"), "pyiceberg's configuration has no such catalog"),
        ((), "no table is named"),
    ],
)
def test_a_wrong_place_is_refused_by_name(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    done = shell.run("tables", "check", *arguments)
    assert (done.code, words in done.err) == (2 if "neither" in words or "_name" in words else 1, True), done.err


def test_without_the_packages_the_extra_is_named(
    shell: Shell, tables: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("tsdb.history.iceberg")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    done = shell.run("tables", "check", *tables)
    assert (done.code, "pip install 'kafka-tsdb[tables]'" in done.err) == (1, True)


def test_small_files_are_joined_and_old_snapshots_expired_only_with_yes(
    shell: Shell, tables: tuple[str, ...], tmp_path: Path
) -> None:
    shell.ok("tables", "create", *tables, "--buckets", 1)
    for number in range(3):
        with open_catalog(TableSettings(tables[1])) as catalog:
            some = fragments(random_rows(number, packs=1, windows=1))
            emit(load_table(catalog, NAME), some, known_labels, state(number + 1))
    row = {"day": "1970-01-01", "bucket": 0, "files_before": 3}
    asked = shell.ok("tables", "compact", *tables, "--files-min", 2, "--output", "json").json["joined"]
    assert asked == [{**row, "files_after": None, "skipped": True}]
    assert "1 would be joined" in shell.ok("tables", "compact", *tables, "--files-min", 2).err
    done = shell.ok("tables", "compact", *tables, "--files-min", 2, "--yes", "--output", "json").json["joined"]
    assert done == [{**row, "files_after": 1, "skipped": False}]
    assert shell.ok("tables", "expire", *tables, "--output", "json").json == {"snapshots": [], "files": []}
    asked = shell.ok("tables", "expire", *tables, "--older-than", "1ms", "--output", "json").json
    assert (len(asked["snapshots"]), sum(path.endswith(".parquet") for path in asked["files"])) == (3, 3)
    assert len(list(tmp_path.rglob("*.parquet"))) == 4
    assert "expired 3 snapshots" in shell.ok("tables", "expire", *tables, "--older-than", "1ms", "--yes").err
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_old_days_are_dropped_only_with_yes(shell: Shell, tables: tuple[str, ...]) -> None:
    shell.ok("tables", "create", *tables)
    today_ms = time.time_ns() // 86_400_000_000_000 * 86_400_000
    new = fragment_of({(7, today_ms): (5, 1)}, window_start_ms=today_ms)
    old = fragments(random_rows(1, packs=1, windows=1))
    with open_catalog(TableSettings(tables[1])) as catalog:
        emit(load_table(catalog, NAME), [new, *old], known_labels, state(1))
    asked = shell.ok("tables", "drop", *tables, "--older-than", "30d", "--output", "json").json
    assert asked["samples"] == len(expected(old))
    assert f"{len(expected(old))} samples in" in shell.ok("tables", "drop", *tables, "--older-than", "30d").err
    assert "dropped" in shell.ok("tables", "drop", *tables, "--older-than", "30d", "--yes").err
    assert shell.ok("tables", "drop", *tables, "--older-than", "30d", "--output", "json").json["samples"] == 0
    with open_catalog(TableSettings(tables[1])) as catalog:
        table = load_table(catalog, NAME)
        assert rows_of(table) == expected([new])
        assert table_state(table) == state(1)


def test_losses_of_a_table_are_accepted_in_its_catalog(shell: Shell, tables: tuple[str, ...], tmp_path: Path) -> None:
    shell.ok("tables", "create", *tables)
    early, late = (HoleRecord(0, 5, at, at + 10, "corrupt_chunk", at) for at in (1_000, 5_000))
    with open_catalog(TableSettings(tables[1])) as catalog:
        table = load_table(catalog, NAME)
        series_table(catalog, table, {})
        emit(table, fragments(random_rows(1, packs=1, windows=1)), known_labels, with_holes(state(1), early, late))
    history = ("--history", f"iceberg+file://{tmp_path}/catalog-files/tsdb/samples")
    span = ("--start", "0", "--end", "1970-01-01T00:00:02Z")
    accept = ("holes", "accept", *span, "--output", "json")
    without = shell.run(*accept, *history, "--yes")
    assert (without.code, "give --tables" in without.err) == (1, True)
    shown = shell.ok(*accept, *tables)
    assert "1 would be accepted" in shown.err
    assert [one["accepted"] for one in shell.ok("holes", "ls", *history, "--output", "json").json["holes"]] == [
        False
    ] * 2
    assert "1 accepted" in shell.ok(*accept, *tables, "--yes").err
    for place in (tables, history):
        found = shell.ok("holes", "ls", *place, "--output", "json").json["holes"]
        assert [(one["start_ms"], one["accepted"]) for one in found] == [(1_000, True), (5_000, False)]
    assert "0 would be accepted" in shell.ok(*accept, *tables).err
    assert shell.ok("tables", "check", *tables, "--output", "json").json["holes"] == 2


def with_holes(one: TableState, *holes: HoleRecord) -> TableState:
    return replace(one, holes=holes, holes_total=len(holes))
