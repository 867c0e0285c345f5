"""Ground for imports: topics, `meta`, an empty history and, beside them, a loader in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from support.servers.histories import META, HistoryFactory, written
from support.servers.loaders import OPTIONS
from support.servers.logs import LogFactory
from support.spark.spark import places
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.codec.chunk.key import ChunkKey
from tsdb.history.interface import ChunkStore, Loaded
from tsdb.history.loader.loader import Loader
from tsdb.history.merge import merge
from tsdb.log.interface import METRICS, Log
from tsdb.log.meta import write_meta
from tsdb.model.clock import SystemClock
from tsdb.query.history.index import HistoryIndex
from tsdb.query.history.index_generation import IndexGeneration

LOADER_ENDS_WITHIN_S = 30.0
BUFFER_BYTES = 256 << 10  # A loader keeps less than this: tests compare the memory of this process with its samples.
SamplesByWindow = dict[tuple[int, int], list[tuple[int, int]]]
"""(ts_ms, bits of the value), ascending, by (series id, window)."""


class ImportGround:
    """A context manager; entering makes everything, leaving ends the loader."""

    def __init__(self, logs: LogFactory, histories: HistoryFactory) -> None:
        self._logs = logs
        self._histories = histories
        self.shared = META
        self.places = places(logs, histories)

    def __enter__(self) -> Self:
        self._logs.create(META.partitions)
        self.log: Log = self._logs.open()
        write_meta(self.log, META)
        self._histories.create()
        self.history: ChunkStore = self._histories.open()
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def lose_history(self) -> None:
        """History is dropped and made again; a new loader begins from zero."""
        self._stop()
        self.history.close()
        self._histories.empty()
        self.history = self._histories.open()
        self._start()

    @contextmanager
    def no_loader(self) -> Iterator[None]:
        """Stop the loader during the block."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def mark_loaded(self, through_ms: int) -> None:
        """Write `loaded` as after a chunk stage that has emitted all before a time, of a log without older samples."""
        topic_id = self.log.topic_id(METRICS)
        for partition in range(META.partitions):
            mark = Loaded(topic_id, partition, 0, through_ms)
            written(lambda done, of=mark: self.history.write_loaded(of, done))  # type: ignore[misc]

    def kept_index(self) -> HistoryIndex:
        """As a querier keeps it, one more with each call."""
        return HistoryIndex(self.history, IndexGeneration(self.log, self.log.topic_id(METRICS), SystemClock()).now)

    def rows(self) -> dict[ChunkKey, bytes]:
        """Everything that history holds."""
        pieces = (piece for split in self.history.row_splits(3) for piece in self.history.scan(split))
        return {row.key: row.value for piece in pieces for row in piece}

    def held(self) -> SamplesByWindow:
        """The samples that reads would find: merged by order."""
        windows: dict[tuple[int, int], list[bytes]] = {}
        for key, value in self.rows().items():
            windows.setdefault((key.pack_id, key.window_start_ms), []).append(value)
        found: SamplesByWindow = {}
        for (_, window), values in windows.items():
            fragment = merge([decode_chunk(value) for value in values])
            bits = fragment.value.view("u8").tolist()
            for at, series in enumerate(fragment.series_id.tolist()):
                start, end = int(fragment.sample_start[at]), int(fragment.sample_start[at + 1])
                found[series, window] = list(zip(fragment.ts_ms[start:end].tolist(), bits[start:end], strict=True))
        return found

    def _start(self) -> None:
        self._loader = Loader(
            self.log, self.history, replace(OPTIONS, buffer_bytes_max=BUFFER_BYTES), SystemClock(), seed=1
        )
        self._loader.start()

    def _stop(self) -> None:
        self._loader.close()
        assert self._loader.join(LOADER_ENDS_WITHIN_S), "the loader did not end"
