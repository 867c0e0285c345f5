"""Loaders for tests: one that can be killed within the process, and what history holds after them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from support.data.chunk_topics import Expected
from tsdb.codec.chunk.key import ChunkKey
from tsdb.history.interface import ChunkSink, ChunkStore
from tsdb.history.loader.loader import GROUP, Loader, LoaderOptions
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Group, Log, Position, TopicPartition
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Unavailable
from tsdb.model.time_set import PRODUCTION

OPTIONS = LoaderOptions(PRODUCTION, commit_interval_s=0.02, drain_s=10.0)


class Lifeline:
    """A switch that a killed loader's log and history share: once cut, nothing of it has an effect any more."""

    def __init__(self) -> None:
        self._cut = threading.Event()

    def cut(self) -> None:
        """The process is gone."""
        self._cut.set()

    @property
    def is_cut(self) -> bool:
        return self._cut.is_set()


class _MortalGroup:
    """A group whose commits end with its process."""

    def __init__(self, group: Group, lifeline: Lifeline) -> None:
        self._group = group
        self._lifeline = lifeline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        if self._lifeline.is_cut:
            raise Unavailable("killed", reason="stale_member")
        self._group.commit(positions)


class MortalLog:
    """A log as a process sees it that may be killed."""

    def __init__(self, log: Log, lifeline: Lifeline) -> None:
        self._log = log
        self._lifeline = lifeline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def group(self, group_id: str, name: str = "", *, linger_s: float = 0.0) -> _MortalGroup:
        return _MortalGroup(self._log.group(group_id, name, linger_s=linger_s), self._lifeline)


class MortalStore:
    """A history as a process sees it that may be killed. `written`: how many statements it began."""

    def __init__(self, store: ChunkSink, lifeline: Lifeline, on_write: Callable[[int], None]) -> None:
        self._store = store
        self._lifeline = lifeline
        self._on_write = on_write
        self.written = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._counted(found) if name.startswith(("write", "delete")) else found

    def _counted(self, statement: Callable[..., None]) -> Callable[..., None]:
        def begin(*arguments: Any) -> None:
            self.written += 1
            self._on_write(self.written)
            if not self._lifeline.is_cut:
                statement(*arguments)

        return begin


def run_and_kill(log: Log, store: ChunkSink, after_writes: int, give_up_s: float = 30.0) -> bool:
    """One loader that is killed when it begins its n-th statement; whether it came so far before all was loaded."""
    lifeline, reached = Lifeline(), threading.Event()

    def on_write(count: int) -> None:
        if count >= after_writes:
            lifeline.cut()
            reached.set()

    mortal_log: Any = MortalLog(log, lifeline)
    mortal_store: Any = MortalStore(store, lifeline, on_write)
    loader = Loader(mortal_log, mortal_store, OPTIONS, SystemClock(), seed=1)
    loader.start()
    try:
        waited = 0.0
        while not reached.wait(0.05) and waited < give_up_s and not is_loaded(log):
            waited += 0.05
    finally:
        lifeline.cut()
        loader.close()
        loader.abort()
    return reached.is_set()


def is_loaded(log: Log) -> bool:
    """Whether everything on `chunks` and `series` is committed; not while the log does not answer."""
    try:
        return _is_committed(log)
    except Unavailable:
        return False


def _is_committed(log: Log) -> bool:
    places = [(topic, number) for topic in (CHUNKS, SERIES) for number in range(log.partitions(CHUNKS))]
    with log.group(GROUP) as member:
        committed = member.committed(places)
    for topic in (CHUNKS, SERIES):
        for number, marks in log.watermarks(topic, list(range(log.partitions(topic)))).items():
            at = committed[topic, number]
            if marks.high > marks.low and (at is None or at.next_offset < marks.high):
                return False
    return True


def assert_holds(store: ChunkStore, log: Log, expected: Expected) -> None:
    """History holds exactly that."""
    assert _rows(store) == expected.rows
    assert store.loaded(log.topic_id(METRICS)) == expected.loaded
    assert _series(store) == {place: partition for place, (_, partition) in expected.series.items()}
    holes = [one.hole for one in store.holes(None, -(1 << 60), 1 << 60)]
    assert sorted(holes, key=str) == sorted(expected.holes, key=str)


def _rows(store: ChunkStore) -> dict[ChunkKey, bytes]:
    pieces = (piece for split in store.row_splits(3) for piece in store.scan(split))
    return {row.key: row.value for piece in pieces for row in piece}


def _series(store: ChunkStore) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for epoch in store.epochs():
        for name in store.metric_names(epoch):
            rows = store.series(epoch, name)
            pairs = zip(rows.series_id.tolist(), rows.partition.tolist(), strict=True)
            found.update({(number, epoch): partition for number, partition in pairs})
    return found
