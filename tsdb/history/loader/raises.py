"""Raises of `loaded`: written only where the value that was written last still stands.

History may be emptied, or replaced by an older copy, under a running loader. What is written next would then say that
all below it is there. So each raise looks first; where the last value is gone the partition has to start from zero.
A write on its way while history is emptied is not seen: it is milliseconds long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial

from tsdb.history.interface import ChunkSink, Loaded, OnDone
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

log = get_logger(__name__)

replaced_total = counter(
    "tsdb_loader_history_replaced_total",
    "Partitions started from zero because history no longer had what was loaded last: it was emptied or replaced.",
)

OnReplaced = Callable[[Collection[int]], object]
"""Told of partitions that have to start from zero, once or again until they do."""


class Raises:
    """Thread-safe. `add` returns at once and wakes; `write_all`, on a thread that may wait for history, does the work.

    Answers Unavailable (history_replaced) to what must not be written.
    """

    def __init__(self, store: ChunkSink, on_replaced: OnReplaced, wake: Callable[[], object]) -> None:
        self._store = store
        self._on_replaced = on_replaced
        self._wake = wake
        self._lock = threading.Lock()  # Guards all below; a leaf.
        self._last: dict[int, Loaded] = {}
        self._lives: dict[int, int] = {}  # How often a partition started: answers of an earlier life count for nothing.
        self._due: list[tuple[Loaded, OnDone]] = []
        self._replaced: set[int] = set()  # Until they start from zero.

    def begin(self, partitions: Collection[int], found: Mapping[int, Loaded]) -> None:
        """These partitions start; found: what history says of them, and nothing of those that start from zero."""
        with self._lock:
            dropped = [done for loaded, done in self._due if loaded.partition in partitions]
            self._due = [(loaded, done) for loaded, done in self._due if loaded.partition not in partitions]
            self._replaced.difference_update(partitions)
            for partition in partitions:
                self._last.pop(partition, None)
                self._lives[partition] = self._lives.get(partition, 0) + 1
            self._last.update({partition: found[partition] for partition in partitions if partition in found})
        for done in dropped:
            done(_replaced_error())

    def add(self, loaded: Loaded, on_done: OnDone) -> None:
        """Write it soon."""
        with self._lock:
            self._due.append((loaded, on_done))
        self._wake()

    def write_all(self) -> None:
        """Begin all writes that are due; those that must not be are answered."""
        # Together: what was acknowledged by now is seen by a read that begins after.
        with self._lock:
            due, self._due = self._due, []
            last, lives = dict(self._last), dict(self._lives)
        for topic_id in {loaded.topic_id for loaded, _ in due}:
            self._write([one for one in due if one[0].topic_id == topic_id], topic_id, last, lives)

    def _write(
        self, due: list[tuple[Loaded, OnDone]], topic_id: str, last: Mapping[int, Loaded], lives: Mapping[int, int]
    ) -> None:
        try:
            held = self._store.loaded(topic_id)
        except TsdbError as error:
            for _, on_done in due:
                on_done(error)
            return
        gone = {number for number, one in last.items() if one.topic_id == topic_id and not _stands(held, one)}
        if gone:
            self._tell(gone)
        for loaded, on_done in due:
            if loaded.partition in gone:
                on_done(_replaced_error())
                continue
            life = lives.get(loaded.partition, 0)
            try:
                self._store.write_loaded(loaded, partial(self._written, loaded, life, on_done))
            except TsdbError as error:
                on_done(error)

    def _tell(self, gone: set[int]) -> None:
        with self._lock:
            fresh = gone - self._replaced
            self._replaced |= fresh
        if fresh:
            replaced_total.inc(len(fresh))
            log.error("history was emptied or replaced: starting from zero", partitions=sorted(fresh))
        self._on_replaced(gone)

    def _written(self, loaded: Loaded, life: int, on_done: OnDone, error: TsdbError | None) -> None:
        with self._lock:
            before = self._last.get(loaded.partition)
            higher = before is None or _reach(before) <= _reach(loaded)
            if error is None and higher and self._lives.get(loaded.partition, 0) == life:
                self._last[loaded.partition] = loaded
        on_done(error)


def _stands(held: Mapping[int, Loaded], last: Loaded) -> bool:
    found = held.get(last.partition)
    return found is not None and _reach(found) >= _reach(last)


def _reach(loaded: Loaded) -> tuple[int, int]:
    return loaded.position, loaded.emitted_through_ms


def _replaced_error() -> Unavailable:
    return Unavailable("history was emptied or replaced: the partition starts from zero", reason="history_replaced")
