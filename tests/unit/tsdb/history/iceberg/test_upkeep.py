"""The upkeep of a table joins, expires and drops, leaves each sample there, and a failed turn is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from support.data.chunk_rows import random_rows
from support.data.table_rows import NAME, expected, fragments, known_labels, new_table, rows_of, settings_in, state
from support.servers.logs import wait_until
from tsdb.history.iceberg import upkeep as upkeep_module
from tsdb.history.iceberg.catalog import load_table, open_catalog
from tsdb.history.iceberg.emission import emit
from tsdb.history.iceberg.keeper import failures_total
from tsdb.history.iceberg.upkeep import TableUpkeep, UpkeepOptions, turns_total
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable

DAY_S = 86_400.0
FOREVER_S = 40_000 * DAY_S


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(settings_in(tmp_path)) as catalog:
        new_table(catalog, 1)
        yield catalog


def filled(catalog: Catalog, count: int = 10) -> dict[tuple[int, int], tuple[int, int]]:
    """Samples of two days, in many small files."""
    some = fragments(random_rows(5, packs=3, windows=8, samples=60))
    share = -(-len(some) // count)
    for number in range(count):
        emit(load_table(catalog, NAME), some[number * share : (number + 1) * share], known_labels, state(number + 1))
    return expected(some)


def upkeep(folder: Path, options: UpkeepOptions, *, now_ms: int, is_kept: bool = True) -> TableUpkeep:
    return TableUpkeep(settings_in(folder), options, lambda: is_kept, ManualClock(now_ms))


@pytest.mark.slow
def test_a_turn_joins_files_and_expires_snapshots(catalog: Catalog, tmp_path: Path) -> None:
    want = filled(catalog)
    before = len(list(load_table(catalog, NAME).scan().plan_files()))
    # Later than every snapshot by more than their age.
    upkeep(tmp_path, UpkeepOptions(1.0, 60.0), now_ms=4_000_000_000_000).turn()
    table = load_table(catalog, NAME)
    assert len(list(table.scan().plan_files())) < before
    assert len(table.metadata.snapshots) == 1
    assert rows_of(table) == want


def test_a_turn_keeps_young_snapshots_and_all_days(catalog: Catalog, tmp_path: Path) -> None:
    want = filled(catalog, 3)
    upkeep(tmp_path, UpkeepOptions(1.0, FOREVER_S), now_ms=4_000_000_000_000).turn()
    assert len(load_table(catalog, NAME).metadata.snapshots) == 3
    assert rows_of(load_table(catalog, NAME)) == want


def test_days_over_the_retention_are_dropped(catalog: Catalog, tmp_path: Path) -> None:
    want = filled(catalog)
    upkeep(tmp_path, UpkeepOptions(1.0, FOREVER_S, retention_s=DAY_S), now_ms=2 * 86_400_000).turn()
    assert rows_of(load_table(catalog, NAME)) == {key: one for key, one in want.items() if key[1] >= 86_400_000}


def test_a_turn_that_fails_is_counted_and_the_next_one_does_it(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want, failed = filled(catalog), list[int]()

    def away(*arguments: object) -> object:
        failed.append(1)
        monkeypatch.undo()
        raise Unavailable("away", reason="tables_unavailable")

    monkeypatch.setattr(upkeep_module, "compact", away)
    turns, failures = turns_total._value.get(), failures_total.labels("tables_unavailable")._value.get()
    component = upkeep(tmp_path, UpkeepOptions(0.01, 60.0), now_ms=4_000_000_000_000)
    component.start()
    wait_until(lambda: turns_total._value.get() > turns)
    component.close()
    assert component.join(30.0)
    assert component.failure() is None
    assert failures_total.labels("tables_unavailable")._value.get() == failures + len(failed) == failures + 1
    assert rows_of(load_table(catalog, NAME)) == want


def test_a_process_whose_keeper_stands_by_leaves_the_upkeep_to_the_other(catalog: Catalog, tmp_path: Path) -> None:
    filled(catalog)
    asked = list[int]()

    def is_kept() -> bool:
        asked.append(1)
        return False

    component = TableUpkeep(settings_in(tmp_path), UpkeepOptions(0.001, 60.0), is_kept, ManualClock(0))
    turns = turns_total._value.get()
    component.start()
    wait_until(lambda: len(asked) > 5)
    component.close()
    assert component.join(30.0)
    assert turns_total._value.get() == turns
