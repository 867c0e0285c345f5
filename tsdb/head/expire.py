"""Expiry: forgets series without samples here that were not announced for two windows of broker time."""

from __future__ import annotations

from collections.abc import Callable

from tsdb.head.memory import HeadMemory
from tsdb.head.slices.contents import Contents
from tsdb.index.index import SeriesIndex

ANNOUNCED_WINDOWS = 2  # A gateway announces each series it writes once a window; after two no gateway writes it.
ROUNDS_A_WINDOW = 8  # Checks per window. Each check passes over all series.
RELEASE_AFTER = 400  # Rounds of maintenance, more than a minute: far longer than a read keeps refs.


class Expiry:
    """Runs on the head's writer thread. forgotten: called after series were forgotten, to clear caches of refs."""

    def __init__(
        self,
        contents: Contents,
        index: SeriesIndex,
        memory: HeadMemory,
        window_ms: int,
        forgotten: Callable[[], None],
    ) -> None:
        self._contents = contents
        self._index = index
        self._memory = memory
        self._window_ms = window_ms
        self._forgotten = forgotten
        self._checked_at_ms: int | None = None
        self._release_in: int | None = None

    @property
    def progress(self) -> tuple[int | None, int | None]:
        """The values that the next round needs."""
        return self._checked_at_ms, self._release_in

    @progress.setter
    def progress(self, progress: tuple[int | None, int | None]) -> None:
        self._checked_at_ms, self._release_in = progress

    def run(self) -> int:
        """Forget the series that are due. Returns their number."""
        self._release()
        watermark = self._contents.watermark_ms
        if watermark is None or not self._is_due(watermark):
            return 0
        self._checked_at_ms = watermark
        refs = self._index.expired(
            watermark - ANNOUNCED_WINDOWS * self._window_ms, self._contents.marked(self._index.refs_size)
        )
        if len(refs):
            self._index.forget(refs)
            self._forgotten()
            self._release_in = RELEASE_AFTER
        return len(refs)

    def _is_due(self, watermark_ms: int) -> bool:
        last_ms = self._checked_at_ms
        return last_ms is None or watermark_ms - last_ms >= self._window_ms // ROUNDS_A_WINDOW

    def _release(self) -> None:
        """Let new series use the refs of forgotten ones, once no read can hold them."""
        if self._release_in is None:
            return
        self._release_in -= 1
        if self._release_in <= 0:
            self._release_in = None
            self._index.release_forgotten()
            if self._memory.is_tight():
                # Only a compaction frees the labels of released series.
                self._index.compact()
