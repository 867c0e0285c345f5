"""A table of series gives the labels of any series, with Arrow columns of the series of recent batches alone."""

from __future__ import annotations

import random
import tracemalloc
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from bench.spark.spark_labels import AnnouncedIndex
from spark_backfill.source import series_table
from spark_backfill.source.columns import LABELS, sample_schema
from spark_backfill.source.filters import Narrowing
from spark_backfill.source.history import history_table
from spark_backfill.source.series_table import ABSENT, LabelColumns, LabelText, SeriesLabels
from tsdb.history.interface import ChunkStore
from tsdb.model.labels import canonical_labels, parse_labels

SERIES = 500
CANONICAL = [
    canonical_labels({"__name__": "up", "instance": f"host-{at}", **({"dc": f"{at % 3}"} if at % 7 else {})})
    for at in range(SERIES)
]
IDS = np.random.default_rng(1).permutation(np.arange(1, SERIES + 1, dtype=np.uint64) << np.uint64(40))
MAP = to_arrow_schema(sample_schema(), timezone="UTC").field(LABELS)
DC = to_arrow_schema(StructType([StructField("dc", StringType())]), timezone="UTC").field("dc")


def labels_of(ids: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> list[dict[str, str]]:
    of = dict(zip(IDS.tolist(), CANONICAL, strict=True))
    return [dict(parse_labels(of[one])) for one in ids.tolist()]


@pytest.mark.parametrize("built_max", [1, 30, 10_000])
def test_any_batches_get_their_labels_however_few_columns_are_kept(
    built_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_table, "BUILT_MAX", built_max)
    table = SeriesLabels(IDS, CANONICAL)
    source = random.Random(built_max)
    for _ in range(60):
        asked = np.repeat(np.array(source.sample(IDS.tolist(), 20), np.uint64), source.randrange(1, 4))
        wanted = labels_of(asked)
        rows = table.find(asked)
        assert [dict(each) for each in table.labels(MAP, rows).to_pylist()] == wanted
        assert table.labels(DC, rows).to_pylist() == [each.get("dc") for each in wanted]


def test_columns_are_kept_of_recent_batches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_table, "BUILT_MAX", 50)
    asked: list[int] = []

    def canonical(rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[bytes]:
        asked.extend(rows.tolist())
        return [CANONICAL[at] for at in rows.tolist()]

    columns = LabelColumns(canonical)
    pack = np.arange(5)
    for window in range(180):
        columns.take(MAP, np.repeat(pack, 3), SERIES)
        assert len(asked) == 5, f"window {window} of the same pack parses no labels again"
    most = columns.nbytes
    for first in range(0, SERIES, 25):
        columns.take(MAP, np.arange(first, first + 25), SERIES)
        most = max(most, columns.nbytes)
    whole = LabelColumns(canonical)
    whole.take(MAP, np.arange(SERIES), SERIES)
    assert most < whole.nbytes / 4


def test_a_table_may_grow_between_batches() -> None:
    columns = LabelColumns(lambda rows: [CANONICAL[at] for at in rows.tolist()])
    assert columns.take(DC, np.array([1, 0, 1]), 2).to_pylist() == ["1", None, "1"]
    assert columns.take(DC, np.array([9, 1]), 10).to_pylist() == ["0", "1"]
    assert len(columns.take(DC, np.empty(0, np.int64), 10)) == 0


def test_joined_labels_are_those_of_each_and_a_repeated_series_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_table, "ADDED_AT_ONCE", 7)
    text, part = LabelText(CANONICAL[:300]), LabelText(CANONICAL[300:])
    part.labels(np.array([0], np.uint32))
    text.join(part)
    text.join(LabelText())
    text.add(CANONICAL[:1])
    assert text.labels(np.arange(SERIES + 1, dtype=np.uint32)) == [*CANONICAL, CANONICAL[0]]
    table = SeriesLabels.joined(np.append(IDS, IDS[0]), text)
    assert len(table) == SERIES
    assert [dict(one) for one in table.labels(MAP, table.find(IDS)).to_pylist()] == labels_of(IDS)
    assert table.find(np.array([77], np.uint64)).tolist() == [ABSENT]


def test_an_empty_table_knows_no_series() -> None:
    table = SeriesLabels.joined(np.empty(0, np.uint64), LabelText())
    assert table.find(IDS[:2]).tolist() == [ABSENT, ABSENT]
    assert table.labels(MAP, np.empty(0, np.int64)).equals(pa.array([], MAP.type))


@pytest.mark.slow
@pytest.mark.parametrize("names", [1, 200])
def test_a_million_series_in_two_epochs_take_less_than_512_mib_of_a_worker(names: int) -> None:
    """Measured at a fiftieth of them, because memory is in proportion to series."""
    count = 20_000
    tracemalloc.start()
    try:
        table = history_table(cast(ChunkStore, AnnouncedIndex(count, names)), Narrowing(), 1).series
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table) == count
    assert peak * (1_000_000 // count) < 512 << 20, f"{peak // count} bytes a series"
