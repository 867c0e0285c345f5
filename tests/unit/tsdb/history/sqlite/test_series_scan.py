"""A scan of the series index of an embedded history reads by key, across the borders of pieces, epochs and names."""

from __future__ import annotations

from pathlib import Path

from support.servers.histories import Answers, HistoryFactory, announcement
from tsdb.history.sqlite.store import SCAN_ROWS


def test_each_row_comes_once_in_pieces_of_bounded_size(tmp_path: Path) -> None:
    rows = {
        (announcement(number % 3 - 1, name=f"m{number % 7}", instance=str(number)), number % 2)
        for number in range(2 * SCAN_ROWS + 1)
    }
    with HistoryFactory(f"sqlite:///{tmp_path}/history.db") as factory:
        factory.create()
        store, answers = factory.open(), Answers()
        for one, partition in rows:
            store.write_series(one, partition, answers)
        assert set(answers.wait(len(rows))) == {None}
        pieces = list(store.scan_series())
    assert [len(piece) for piece in pieces] == [SCAN_ROWS, SCAN_ROWS, 1]
    assert {row for piece in pieces for row in piece} == rows
