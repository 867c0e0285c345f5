"""History reads: the methods of a ChunkStore that a querier uses. Their contracts are in tsdb.history.interface."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from tsdb.history.interface import ChunkRow, HistoryHole, Loaded, SeriesIndexRows, WindowRange


class HistoryReads(Protocol):
    """The reading half of ChunkStore, method by method with the same contracts. Thread-safe."""

    def read(self, pack_ids: Sequence[int], windows: WindowRange) -> Iterator[list[ChunkRow]]: ...

    def loaded(self, topic_id: str) -> dict[int, Loaded]: ...

    def holes(self, partitions: Collection[int] | None, start_ms: int, end_ms: int) -> list[HistoryHole]: ...

    def metric_names(self, epoch: int) -> list[bytes]: ...

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows: ...
