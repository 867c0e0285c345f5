"""Backup and restore of history, embedded and on real servers: the same rows, and loaders that go on from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.backup.backup_drill import drop
from support.backup.backups import WINDOWS, Ground, ground
from support.counters import sample
from support.servers.histories import written
from support.servers.loaders import assert_holds
from support.shared_servers import contract_history
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.loader.loader import CHUNKS_TRIMMED
from tsdb.log.interface import CHUNKS, METRICS
from tsdb.model.errors import InvalidRequest

EVER_MS = 1 << 60


@pytest.fixture(params=["embedded", "servers"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    if request.param == "embedded":
        log_url, history_url = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db"
    else:
        broker, node = request.getfixturevalue("kafka"), request.getfixturevalue("cassandra")
        log_url, history_url = f"kafka://{broker.bootstrap}", contract_history(node)
    with ground(log_url, history_url) as made:
        yield made


def chunks_loaded() -> float:
    return sample("tsdb_loader_records_total", kind="chunk")


def lose(place: Ground) -> None:
    """Drop the keyspace, or empty the file, and make the tables anew."""
    if not place.histories.is_cassandra:
        place.histories.empty()
        return
    drop(place.histories.url)
    place.histories.create()


def test_a_loader_goes_on_from_a_restored_history_and_nothing_is_missing(place: Ground, tmp_path: Path) -> None:
    store = place.histories.open()
    first = place.append_windows()
    place.load(store, first)
    lost = HoleRecord(1, 0, 0, 10, "corrupt_record", 3)
    written(lambda done: store.accept_hole(lost, done))
    made = place.back_up(tmp_path / "backup")
    assert made.rows("chunks") == len(first.rows)
    # Loaders have gone past the backup when history is lost: their commits are newer than it.
    later = place.append_windows(WINDOWS)
    place.load(store, later)
    lose(place)
    again = place.histories.open()
    place.restore(tmp_path / "backup", place.target())
    restored = {one.hole: one.accepted for one in again.holes(None, -EVER_MS, EVER_MS)}
    assert restored == {**dict.fromkeys(first.holes, False), lost: True}
    first.holes.append(lost)
    assert again.loaded(place.log.topic_id(METRICS)) == {}, "a loader says when the rest is there"
    before = chunks_loaded()
    place.load(again, later)
    assert_holds(again, place.log, first.later(later))
    assert chunks_loaded() - before < len(first.rows) + len(later.rows), "it did not start from zero"


def test_an_old_backup_is_restored_from_zero_and_the_rest_is_a_named_loss(place: Ground, tmp_path: Path) -> None:
    store = place.histories.open()
    first = place.append_windows()
    place.load(store, first)
    place.back_up(tmp_path / "backup")
    later = place.append_windows(WINDOWS)
    place.load(store, later)
    marks = place.log.watermarks(CHUNKS, [0])[0]
    place.logs.topics().trim(CHUNKS, {0: marks.high - 1})
    place.histories.empty()
    again, target = place.histories.open(), place.target()
    with pytest.raises(InvalidRequest, match=r"partition 0, which now begins at") as refused:
        place.restore(tmp_path / "backup", target)
    assert refused.value.reason == "backup_too_old"
    assert not again.epochs()
    place.restore(tmp_path / "backup", target, from_zero=True)
    assert not again.loaded(place.log.topic_id("metrics"))
    place.load(again, later)
    holes = [one.hole for one in again.holes([0], -EVER_MS, EVER_MS) if one.hole.reason == CHUNKS_TRIMMED]
    assert [hole.record_offset for hole in holes] == [marks.high - 1]
