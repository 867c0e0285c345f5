"""The writing half of a history in dicts. The test sets its answers: at once, delayed or refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from tsdb.codec.chunk.key import ChunkKey
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.series_record import Announcement
from tsdb.history.interface import Loaded, OnDone
from tsdb.model.errors import TsdbError, Unavailable


class FakeChunkStore:
    """`rows`, `series`, `loaded_rows`, `hole_list`: the contents. `writes`: kinds of all statements, in order.

    fault(kind): None, or the error that a statement gets instead of being stored. While `held`, statements wait for
    `release`.
    """

    def __init__(self) -> None:
        self.rows: dict[ChunkKey, bytes] = {}
        self.series: dict[tuple[int, int], tuple[Announcement, int]] = {}
        self.loaded_rows: dict[tuple[str, int], Loaded] = {}
        self.hole_list: list[HoleRecord] = []
        self.writes: list[str] = []
        self.fault: Callable[[str], TsdbError | None] = lambda kind: None
        self.held = False
        self._lock = threading.Lock()  # Guards _waiting.
        self._waiting: list[Callable[[], None]] = []

    def write(self, key: ChunkKey, value: bytes, on_done: OnDone) -> None:
        self._do("chunk", lambda: self.rows.__setitem__(key, value), on_done)

    def delete_covered(self, keys: Sequence[ChunkKey], on_done: OnDone) -> None:
        self._do("delete", lambda: [self.rows.pop(key, None) for key in keys], on_done)

    def write_loaded(self, loaded: Loaded, on_done: OnDone) -> None:
        def keep() -> None:
            place = (loaded.topic_id, loaded.partition)
            held = self.loaded_rows.get(place)
            if held is None or (held.position, held.emitted_through_ms) <= (loaded.position, loaded.emitted_through_ms):
                self.loaded_rows[place] = loaded

        self._do("loaded", keep, on_done)

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        error = self.fault("read_loaded")
        if error is not None:
            raise error
        return {number: row for (topic, number), row in self.loaded_rows.items() if topic == topic_id}

    def write_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        def keep() -> None:
            if hole not in self.hole_list:
                self.hole_list.append(hole)

        self._do("hole", keep, on_done)

    def delete_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        place = (hole.partition, hole.pack_id, hole.start_ms, hole.end_ms, hole.record_offset)

        def forget() -> None:
            self.hole_list[:] = [
                one
                for one in self.hole_list
                if (one.partition, one.pack_id, one.start_ms, one.end_ms, one.record_offset) != place
            ]

        self._do("hole_delete", forget, on_done)

    def write_series(self, announcement: Announcement, partition: int, on_done: OnDone) -> None:
        place = (announcement.series_id, announcement.epoch)
        self._do("series", lambda: self.series.__setitem__(place, (announcement, partition)), on_done)

    def forget(self) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def release(self) -> int:
        """Answer the waiting statements and stop holding. Returns their number."""
        with self._lock:
            waiting, self._waiting, self.held = self._waiting, [], False
        for answer in waiting:
            answer()
        return len(waiting)

    def _do(self, kind: str, keep: Callable[[], object], on_done: OnDone) -> None:
        self.writes.append(kind)

        def answer() -> None:
            error = self.fault(kind)
            if error is None:
                keep()
            on_done(error)

        with self._lock:
            if self.held:
                self._waiting.append(answer)
                return
        answer()


def away(kind: str) -> TsdbError:
    """A fault function with the same error for all kinds."""
    return Unavailable("history does not answer", reason="timeout")
