"""Raises `loaded`, but only if history still has the last written value.

History may be emptied, or replaced by an older copy, under a running loader. The next value of `loaded` would then
claim samples that are gone. So each raise reads `loaded` first, and so does a round every CHECK_EVERY_S without a
raise. If the last value is gone, the partition must start from zero. A write in flight while history is emptied is not
detected: this gap is milliseconds long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial

from tsdb.history.claims import reach
from tsdb.history.interface import ChunkSink, Loaded, OnDone
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

log = get_logger(__name__)

replaced_total = counter(
    "tsdb_loader_history_replaced_total",
    "Partitions started from zero because history no longer had what was loaded last: it was emptied or replaced.",
)

CHECK_EVERY_S = 5.0  # Seconds between two checks. A check is a small read of history.

OnReplaced = Callable[[Collection[int]], object]
"""Called with partitions that must start from zero, repeatedly until they do."""


class Raises:
    """Thread-safe. `add` returns at once and wakes the writer thread, which calls `write_all` and may wait for history.

    A raise that must not be written is answered with Unavailable (history_replaced).
    """

    def __init__(self, store: ChunkSink, on_replaced: OnReplaced, wake: Callable[[], object]) -> None:
        self._store = store
        self._on_replaced = on_replaced
        self._wake = wake
        self._lock = threading.Lock()  # Guards all below; no other lock is taken under it.
        self._last: dict[int, Loaded] = {}
        self._lives: dict[int, int] = {}  # Number of starts of each partition. Answers to an earlier start are ignored.
        self._due: list[tuple[Loaded, OnDone]] = []
        self._replaced: set[int] = set()  # Partitions that must start from zero and have not yet.
        self._older: dict[int, Loaded] = {}  # Claims of an older copy of history, to be withdrawn.

    @property
    def is_due(self) -> bool:
        """Whether a raise waits for `write_all`. Takes no lock."""
        return bool(self._due)

    def begin(self, partitions: Collection[int], found: Mapping[int, Loaded]) -> None:
        """Start these partitions. found: `loaded` of each in history; a partition that starts from zero is left out."""
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

    def last(self, partition: int) -> Loaded | None:
        """The value that was written or found last; None before the first one."""
        with self._lock:
            return self._last.get(partition)

    def note_older(self, loaded: Loaded) -> None:
        """Remember a claim below one that history had before: an older copy has replaced history."""
        with self._lock:
            self._older[loaded.partition] = loaded

    def take_older(self, partitions: Collection[int]) -> list[Loaded]:
        """The claims of an older copy in these partitions, which their load from zero withdraws first."""
        with self._lock:
            return [self._older.pop(number) for number in partitions if number in self._older]

    def add(self, loaded: Loaded, on_done: OnDone) -> None:
        """Queue a raise and wake the writer thread."""
        with self._lock:
            self._due.append((loaded, on_done))
        self._wake()

    def write_all(self, *, check: bool = False) -> None:
        """Begin all due writes; answer the ones that must not be written. check: look whether the last values stand,
        also when no write is due."""
        # Copied together, so that a read that begins after this sees every write that is acknowledged by now.
        with self._lock:
            due, self._due = self._due, []
            last, lives = dict(self._last), dict(self._lives)
        checked = list(last.values()) if check else []
        for topic_id in {loaded.topic_id for loaded in (*checked, *(one for one, _ in due))}:
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
            self._report_replaced(gone, held)
        for loaded, on_done in due:
            if loaded.partition in gone:
                on_done(_replaced_error())
                continue
            life = lives.get(loaded.partition, 0)
            try:
                self._store.write_loaded(loaded, partial(self._written, loaded, life, on_done))
            except TsdbError as error:
                on_done(error)

    def _report_replaced(self, gone: set[int], held: Mapping[int, Loaded]) -> None:
        with self._lock:
            fresh = gone - self._replaced
            self._replaced |= fresh
            self._older.update({number: held[number] for number in gone if number in held})
        if fresh:
            replaced_total.inc(len(fresh))
            log.error("history was emptied or replaced: starting from zero", partitions=sorted(fresh))
        self._on_replaced(gone)

    def _written(self, loaded: Loaded, life: int, on_done: OnDone, error: TsdbError | None) -> None:
        with self._lock:
            before = self._last.get(loaded.partition)
            higher = before is None or reach(before) <= reach(loaded)
            if error is None and higher and self._lives.get(loaded.partition, 0) == life:
                self._last[loaded.partition] = loaded
        on_done(error)


def _stands(held: Mapping[int, Loaded], last: Loaded) -> bool:
    found = held.get(last.partition)
    return found is not None and reach(found) >= reach(last)


def _replaced_error() -> Unavailable:
    return Unavailable("history was emptied or replaced: the partition starts from zero", reason="history_replaced")
