"""An emission adds samples once, the highest order of each (series, timestamp) wins, and values keep their bits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from support.data.chunk_rows import random_rows
from support.data.table_rows import (
    NAME,
    expected,
    fragments,
    known_labels,
    new_table,
    rows_of,
    settings_in,
    state,
)
from support.oracles.fragment_twin import fragment_of
from support.servers.duck import iceberg_connection
from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.iceberg import rows as rows_module
from tsdb.history.iceberg.catalog import load_table, open_catalog
from tsdb.history.iceberg.emission import Emitted, emit, is_conflict
from tsdb.history.iceberg.state import table_state
from tsdb.model.errors import Unavailable

WINDOW_MS = 4 * 3600 * 1000
STALE, NAN, MINUS_ZERO = 0x7FF0000000000002, 0x7FF8000000000001, 1 << 63


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(settings_in(tmp_path)) as catalog:
        yield catalog


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog)


class Kept:
    """A table and what was put into it."""

    def __init__(self, catalog: Catalog, table: Table) -> None:
        self.catalog = catalog
        self.table = table
        self.given: list[Fragment] = []
        self.emission = 0

    def put(self, some: Sequence[Fragment]) -> Emitted:
        self.emission += 1
        emitted = emit(self.table, some, known_labels, state(self.emission))
        self.given += some
        self.table = load_table(self.catalog, NAME)
        return emitted

    def assert_exact(self) -> None:
        assert rows_of(self.table) == expected(self.given)
        assert table_state(self.table) == state(self.emission)


@pytest.fixture
def kept(catalog: Catalog, table: Table) -> Kept:
    return Kept(catalog, table)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_any_emissions_leave_each_sample_once_with_its_highest_order(kept: Kept, seed: int) -> None:
    print(f"seed {seed}")
    generator = random.Random(seed)
    some = fragments(random_rows(seed, packs=3, windows=5, samples=40))
    generator.shuffle(some)
    while some:
        count = generator.choice([1, 2, 7, 30])
        kept.put(some[:count])
        del some[:count]
        if generator.random() < 0.3:
            kept.put(generator.sample(kept.given, min(5, len(kept.given))))
        kept.assert_exact()


def test_a_repeated_emission_adds_nothing(kept: Kept) -> None:
    some = fragments(random_rows(5, packs=2, windows=2))
    first = kept.put(some)
    again = kept.put(some)
    assert (again.samples, again.replaced, again.files_added, again.repeated) == (0, 0, 0, first.samples)
    kept.assert_exact()


def test_values_keep_their_bits(kept: Kept) -> None:
    values = [STALE, NAN, MINUS_ZERO, 0, 1, (1 << 64) - 1, STALE]
    kept.put([fragment_of({(1 << 63 | 7, 1_000 * at): (5, bits) for at, bits in enumerate(values)})])
    kept.assert_exact()


def test_a_late_sample_for_a_new_time_rewrites_no_file(kept: Kept) -> None:
    kept.put([fragment_of({(7, at): (5, at) for at in range(0, 1_000, 10)})])
    late = kept.put([fragment_of({(7, 5): (9, 1), (8, 0): (9, 2)})])
    assert (late.samples, late.files_replaced) == (2, 0)
    kept.assert_exact()


def test_a_newer_version_takes_the_older_one_out_of_its_file(kept: Kept) -> None:
    kept.put([fragment_of({(7, at): (5, at) for at in range(100)})])
    late = kept.put([fragment_of({(7, 50): (9, 1), (7, 51): (4, 2)})])
    assert (late.samples, late.repeated, late.replaced, late.files_replaced) == (1, 1, 1, 1)
    kept.assert_exact()
    whole = kept.put([fragment_of({(7, at): (20, at) for at in range(100)})])
    assert (whole.replaced, whole.files_added, whole.files_replaced) == (100, 1, 2)
    kept.assert_exact()


def test_versions_are_found_in_files_of_several_row_groups(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "EMITTED_BLOCK_ROWS", 64)
    base = {(series, at): (5, at) for series in range(20) for at in range(50)}
    kept.put([fragment_of(base)])
    files = [task.file.file_path.removeprefix("file://") for task in kept.table.scan().plan_files()]
    assert max(pq.ParquetFile(path).num_row_groups for path in files) > 1
    kept.put([fragment_of(dict.fromkeys(list(base)[::37], (9, 1)))])
    kept.assert_exact()


def test_a_row_group_has_only_the_texts_of_its_rows(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "EMITTED_BLOCK_ROWS", 64)
    kept.put([fragment_of({(series, at): (5, at) for series in range(20) for at in range(50)})])
    texts = ["metric", "tenant", "labels.key_value.key", "labels.key_value.value"]
    for task in kept.table.scan().plan_files():
        coded = pq.ParquetFile(task.file.file_path.removeprefix("file://"), read_dictionary=texts)
        for number in range(coded.num_row_groups):
            block = coded.read_row_group(number).combine_chunks()
            labels = block["labels"].chunk(0)
            for column in (block["metric"].chunk(0), block["tenant"].chunk(0), labels.keys, labels.items):
                assert sorted(column.dictionary.to_pylist()) == sorted(column.unique().to_pylist())
    kept.assert_exact()


def test_a_column_without_values_is_in_no_file_and_null_to_readers(kept: Kept) -> None:
    kept.put(fragments(random_rows(8, packs=2, windows=1, samples=20)))
    for task in kept.table.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        assert {"histogram", "start_ts"}.isdisjoint(pq.read_schema(path).names)
    found = kept.table.scan().to_arrow()
    assert found["histogram"].null_count == found["start_ts"].null_count == len(found) > 0
    with iceberg_connection() as duck:
        asked = "SELECT count(*), count(histogram), count(start_ts) FROM iceberg_scan(?)"
        assert duck.execute(asked, [kept.table.metadata_location]).fetchone() == (len(found), 0, 0)


def test_rows_are_sorted_by_metric_series_and_time(kept: Kept) -> None:
    kept.put(fragments(random_rows(6, packs=5, windows=2, samples=50)))
    for task in kept.table.scan().plan_files():
        found = pq.read_table(task.file.file_path.removeprefix("file://"), columns=["metric", "series_id", "ts"])
        keys = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        assert keys == sorted(keys)


def test_samples_of_an_unannounced_series_are_kept_without_labels(catalog: Catalog, table: Table) -> None:
    emitted = emit(table, [fragment_of({(7, 5): (9, 1)})], lambda ids: [None for _ in ids], state(1))
    assert emitted.unlabelled == 1
    (row,) = load_table(catalog, NAME).scan().to_arrow().to_pylist()
    assert (row["metric"], row["labels"], row["series_id"], row["tenant"]) == ("", [], 7, "")


def test_the_tenant_is_a_column_and_no_label(catalog: Catalog, table: Table) -> None:
    labels = b"__name__\xffup\xff__tenant__\xffa\xffjob\xffb"
    emit(table, [fragment_of({(7, 5): (9, 1)})], lambda ids: [labels for _ in ids], state(1))
    (row,) = load_table(catalog, NAME).scan().to_arrow().to_pylist()
    assert (row["metric"], row["labels"], row["tenant"]) == ("up", [("job", "b")], "a")
    assert (row["histogram"], row["start_ts"]) == (None, None)


def test_of_two_emissions_on_one_snapshot_the_second_changes_nothing(catalog: Catalog, table: Table) -> None:
    some = fragments(random_rows(7, packs=1, windows=1))
    emit(table, some, known_labels, state(1, "first"))
    with pytest.raises(Unavailable) as refused:
        emit(table, [fragment_of({(7, 5): (9, 1)})], known_labels, state(1, "second"))
    assert is_conflict(refused.value)
    now = load_table(catalog, NAME)
    assert rows_of(now) == expected(some)
    found = table_state(now)
    assert found is not None
    assert found.keeper == "first"


def test_a_commit_needs_no_rows_to_move_the_cut(kept: Kept) -> None:
    kept.put([])
    kept.put([])
    kept.assert_exact()


def test_a_days_files_are_those_of_its_windows(kept: Kept) -> None:
    kept.put([fragment_of({(7, day * 86_400_000): (5, 1)}, window_start_ms=day * 86_400_000) for day in (-1, 0, 3)])
    kept.assert_exact()
    days = sorted(task.file.partition[0] for task in kept.table.scan().plan_files())
    assert days == [-1, 0, 3]


def test_kept_rows_keep_whole_series(kept: Kept) -> None:
    groups = rows_module.groups_of([fragment_of({(s, t): (5, t) for s in range(4) for t in range(3)})], known_labels, 1)
    (group,) = groups
    chosen = np.zeros(12, np.bool_)
    chosen[[0, 5, 11]] = True
    assert expected([replace(group.keep(chosen).fragment)]).keys() < expected([group.fragment]).keys()
    assert len(group.keep(chosen).canonical) == 3
