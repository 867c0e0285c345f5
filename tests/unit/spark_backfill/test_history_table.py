"""A narrowed read of history takes only the packs that its conditions leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_backfill.source.filters import Narrowing
from spark_backfill.source.history import HistoryTable, history_table
from support.servers.histories import HistoryFactory, announcement, written
from tsdb.history.interface import ChunkStore
from tsdb.model.selector import Matcher, MatchType

EPOCH = 600
ANNOUNCED = [
    announcement(EPOCH, name=name, job="api", instance=str(instance), path=path)
    for name in ("up", "load")
    for instance in range(5)
    for path in ("a", "b")
]
UP, OTHER_UP, LOAD = ANNOUNCED[0], ANNOUNCED[2], ANNOUNCED[10]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChunkStore]:
    with HistoryFactory(f"sqlite:///{tmp_path}/history.db") as histories:
        histories.create()
        opened = histories.open()
        for one in ANNOUNCED:
            written(lambda done, one=one: opened.write_series(one, 0, done))  # type: ignore[misc]
        yield opened


def table(store: ChunkStore, **narrowed: object) -> HistoryTable:
    return history_table(store, Narrowing(**narrowed), 1)  # type: ignore[arg-type]


def test_a_condition_on_ids_reads_the_packs_of_these_series_alone(store: ChunkStore) -> None:
    found = table(store, series_ids=frozenset({UP.series_id, LOAD.series_id, 77}))
    assert set(found.series.series_ids.tolist()) == {UP.series_id, LOAD.series_id}
    assert set(found.pack_ids.tolist()) == {UP.pack_id, LOAD.pack_id}
    assert found.chosen


def test_conditions_on_ids_and_labels_both_hold(store: ChunkStore) -> None:
    up = Matcher(MatchType.EQUAL, "__name__", "up")
    found = table(store, series_ids=frozenset({UP.series_id, LOAD.series_id}), matchers=(up,))
    assert (found.series.series_ids.tolist(), found.pack_ids.tolist()) == ([UP.series_id], [UP.pack_id])
    narrowed = table(
        store, series_ids=frozenset({OTHER_UP.series_id}), matchers=(up,), pack_ids=frozenset({UP.pack_id})
    )
    assert narrowed.pack_ids.tolist() == []


def test_an_id_that_history_does_not_know_reads_nothing(store: ChunkStore) -> None:
    found = table(store, series_ids=frozenset({77}))
    assert (len(found.series), len(found.pack_ids)) == (0, 0)
    assert len(table(store).pack_ids) == len({one.pack_id for one in ANNOUNCED})
