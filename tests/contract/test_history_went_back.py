"""History that was emptied, replaced by an older copy, or restored: nobody is told that it holds what it lacks.

An import that has ended is in history, and every querier knows its series. Both must hold again before `loaded` claims
anything of a history whose content went back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.backup.backup_drill import drop
from support.backup.backups import WITHIN_S, Ground, ground
from support.data.chunk_topics import WINDOW_MS, Expected, append_entries, chunk_entry, chunk_value, series_entry
from support.servers.histories import written
from support.servers.loaders import OPTIONS, assert_holds, is_loaded
from support.servers.logs import wait_until
from support.shared_servers import contract_history
from tsdb.backup.folder import BackupFolder
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history.interface import ChunkStore, Loaded
from tsdb.history.loader.loader import Loader
from tsdb.log.index_generation import last_generation, raise_generation
from tsdb.log.interface import CHUNKS, METRICS
from tsdb.model.clock import SystemClock
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import metric_name
from tsdb.query.history.index import Choice, HistoryIndex
from tsdb.query.history.index_generation import IndexGeneration

IMPORTED = 77_000  # Number of a series.
IMPORT_KEY = ChunkKey(IMPORTED % 5 + 1, 9 * WINDOW_MS, Kind.IMPORT, 500, 0)


PLACES = ("embedded", "servers")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    if request.param == "embedded":
        log_url, history_url = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db"
    else:
        broker, node = request.getfixturevalue("kafka"), request.getfixturevalue("cassandra")
        log_url, history_url = f"kafka://{broker.bootstrap}", contract_history(node)
    with ground(log_url, history_url) as made:
        yield made


@contextmanager
def running(place: Ground, store: Any) -> Iterator[Loader]:
    loader = Loader(place.log, store, OPTIONS, SystemClock(), seed=1)
    loader.start()
    try:
        yield loader
    finally:
        loader.close()
        assert loader.join(WITHIN_S), "the loader did not end"


def end_an_import(place: Ground, store: ChunkStore, first: Expected) -> Expected:
    """A chunk and a series of partition 0 without a marker, loaded, and the generation raised: the job has ended."""
    entry, announcement = series_entry(0, IMPORTED)
    value = chunk_value(IMPORT_KEY.pack_id, IMPORT_KEY.window_start_ms, 5)
    append_entries(place.log, [entry, chunk_entry(0, IMPORT_KEY, value)])
    with running(place, store):
        wait_until(lambda: is_loaded(place.log))
    raise_generation(place.log, "import-1", SystemClock())
    imported = Expected({IMPORT_KEY: value}, {(announcement.series_id, announcement.epoch): (announcement, 0)})
    return first.later(imported)


def lose(place: Ground) -> None:
    if not place.histories.is_cassandra:
        place.histories.empty()
        return
    drop(place.histories.url)
    place.histories.create()


class Querier:
    """The series that a querier knows of the imported one's metric, with the cache of its index."""

    def __init__(self, place: Ground, store: ChunkStore) -> None:
        topic_id = place.log.topic_id(METRICS)
        self._store, self._topic_id = store, topic_id
        self._index = HistoryIndex(store, IndexGeneration(place.log, topic_id, SystemClock()).now)
        _, announcement = series_entry(0, IMPORTED)
        self._series = announcement.series_id
        self._choice = Choice((), np.array([self._series], np.uint64), frozenset([metric_name(announcement.canonical)]))

    def knows(self) -> bool:
        loaded = self._store.loaded(self._topic_id)
        found = self._index.find(self._choice, 0, 10 * WINDOW_MS, loaded, {0: 0})
        return self._series in found[0].series_ids.tolist()


class Witness:
    """A history that looks what it holds whenever `loaded` is written."""

    def __init__(self, store: ChunkStore, look: Callable[[], tuple[bool, int | None]]) -> None:
        self._store = store
        self._look = look
        self.seen: list[tuple[bool, int | None]] = []
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write_loaded(self, loaded: Loaded, on_done: Any) -> None:
        if ":" not in loaded.topic_id and loaded.partition == 0:
            with self._lock:
                self.seen.append(self._look())
        self._store.write_loaded(loaded, on_done)


def has_import(store: ChunkStore) -> bool:
    return any(row.key == IMPORT_KEY for split in store.row_splits(1) for piece in store.scan(split) for row in piece)


def put_older_copy(place: Ground, store: ChunkStore, first: Expected) -> None:
    """A copy from before the import, whose `loaded` is one marker older."""
    for number, one in first.loaded.items():
        older = Loaded(one.topic_id, number, one.position - 1, one.emitted_through_ms)
        written(lambda done, older=older: store.write_loaded(older, done))  # type: ignore[misc]


def cases(*rows: str, on_servers: Collection[str]) -> pytest.MarkDecorator:
    """Rows over both places. `on_servers`: those that every run has there too; `make soak` has the others."""
    pairs = [(place, row, place == "embedded" or row in on_servers) for place in PLACES for row in rows]
    marked = [pytest.param(place, row, marks=() if chosen else pytest.mark.soak) for place, row, chosen in pairs]
    return pytest.mark.parametrize(("place", "case"), marked, indirect=["place"])


RUNNING, NONE_RUNS = "older copy under a running loader", "older copy while none runs"


@cases("restored", "emptied", RUNNING, NONE_RUNS, on_servers={RUNNING})
def test_loaded_is_not_written_before_imports_are_there_and_queriers_know_them(
    place: Ground, tmp_path: Path, case: str
) -> None:
    store = place.histories.open()
    topic_id = place.log.topic_id(METRICS)
    first = place.append_windows()
    place.load(store, first)
    place.back_up(tmp_path / "backup")
    imported = end_an_import(place, store, first)
    if case != RUNNING:
        lose(place)
    again = place.histories.open()
    if case == "restored":
        place.restore(tmp_path / "backup", place.target())
        assert again.loaded(topic_id) == {}, "the rows of the backup lack the import"
    generation = last_generation(place.log, topic_id)
    witness = Witness(again, lambda: (has_import(again), last_generation(place.log, topic_id)))
    querier = Querier(place, again)
    if case == NONE_RUNS:
        put_older_copy(place, again, first)
    if case.startswith("older"):
        assert querier.knows() == (case == RUNNING)
    with running(place, witness):
        if case == RUNNING:
            wait_until(lambda: is_loaded(place.log))
            place.histories.empty()
            put_older_copy(place, again, first)
            querier = Querier(place, again)
            querier.knows()
        wait_until(lambda: again.loaded(topic_id) == first.loaded)
        assert querier.knows(), "its cache is of an older generation"
    assert witness.seen
    for found, raised in witness.seen:
        assert found, "loaded claims a history without the import"
        assert raised != generation, "loaded was written before the generation was raised"
    assert_holds(again, place.log, imported)


@cases("emptied", "emptied and loaded again", "older copy", on_servers={"emptied and loaded again"})
def test_a_resumed_backup_does_not_claim_rows_that_went_away_in_between(
    place: Ground, tmp_path: Path, case: str
) -> None:
    store, first = begin_a_backup(place, tmp_path)
    place.histories.empty()
    if case == "emptied and loaded again":
        place.load(place.histories.open(), first)
    if case == "older copy":
        put_older_copy(place, store, first)
    refuse_to_resume(place, tmp_path, "history_replaced")


@pytest.mark.parametrize("place", ["embedded"], indirect=True)
def test_a_resumed_backup_does_not_claim_rows_of_a_topic_that_was_made_anew(place: Ground, tmp_path: Path) -> None:
    begin_a_backup(place, tmp_path)
    place.logs.recreate(place.logs.topics(), CHUNKS, 3)
    place.log = place.logs.open()
    refuse_to_resume(place, tmp_path, "other_topic")


def begin_a_backup(place: Ground, folder: Path) -> tuple[ChunkStore, Expected]:
    """A history, what is in it, and a backup that was interrupted."""
    store, first = place.histories.open(), place.append_windows()
    place.load(store, first)
    with pytest.raises(KeyboardInterrupt):
        place.back_up(folder / "backup", advance=interrupt)
    assert not BackupFolder(str(folder / "backup")).has("manifest.json")
    return store, first


def refuse_to_resume(place: Ground, folder: Path, reason: str) -> None:
    with pytest.raises(InvalidRequest, match="give a new folder") as refused:
        place.back_up(folder / "backup")
    assert refused.value.reason == reason
    assert not BackupFolder(str(folder / "backup")).has("manifest.json")


def interrupt(parts: int) -> None:
    raise KeyboardInterrupt


def test_a_history_that_is_emptied_while_it_is_backed_up_makes_no_backup(place: Ground, tmp_path: Path) -> None:
    store = place.histories.open()
    place.load(store, place.append_windows())
    done = []

    def empty(parts: int) -> None:
        done.append(parts)
        if len(done) == 3:
            place.histories.empty()

    with pytest.raises(InvalidRequest) as refused:
        place.back_up(tmp_path / "backup", advance=empty)
    assert refused.value.reason == "history_replaced"
