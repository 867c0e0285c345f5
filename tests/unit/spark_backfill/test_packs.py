"""The jobs read the series index of the epochs that their span touches, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_backfill.packs import names_of
from spark_backfill.places import Places
from support.servers.histories import HistoryFactory, announcement, written
from tsdb.history.interface import WindowRange
from tsdb.model.window import EPOCH_MS, index_epoch

FIRST, LAST = 600, 612


@pytest.fixture
def places(tmp_path: Path) -> Places:
    url = f"sqlite:///{tmp_path}/history.db"
    with HistoryFactory(url) as histories:
        histories.create()
        store = histories.open()
        for epoch in range(FIRST, LAST):
            one = announcement(epoch, name=f"of_{epoch}")
            written(lambda done, one=one: store.write_series(one, 0, done))  # type: ignore[misc]
    return Places(history=url)


def test_a_day_needs_two_epochs_of_a_year(places: Places) -> None:
    middle = 606 * EPOCH_MS + EPOCH_MS // 2
    day = WindowRange(middle, middle + 24 * 3600 * 1000)
    assert [epoch for epoch, _ in names_of(places, day)] == [606, 607]
    edge = WindowRange(606 * EPOCH_MS, 606 * EPOCH_MS + 1)
    assert [epoch for epoch, _ in names_of(places, edge)] == [606, 607]
    assert [epoch for epoch, _ in names_of(places, WindowRange(-(1 << 60), 1 << 60))] == list(range(FIRST, LAST))
    assert names_of(places, WindowRange(0, EPOCH_MS)) == []


def test_every_epoch_that_a_series_of_the_span_may_have_is_read(places: Places) -> None:
    start_ms = 606 * EPOCH_MS + 12_345
    span = WindowRange(start_ms, start_ms + 3600 * 1000)
    read = {epoch for epoch, _ in names_of(places, span)}
    for series in range(0, 1 << 64, (1 << 64) // 997):
        assert {index_epoch(series, span.start_ms), index_epoch(series, span.end_ms - 1)} <= read
