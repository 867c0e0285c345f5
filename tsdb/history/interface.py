"""The history interface: reads and writes rows of chunks, `loaded` of each partition, holes, and the series of the
past.

Implementations (`tsdb.history.sqlite`, `tsdb.history.cassandra`) pass one contract suite; `tsdb.history.iceberg` has
the half that queriers read (`HistoryReads`), because its table is kept another way. Writes are blind upserts that
can be repeated in any number and order: no write needs a read first, and no write depends on another. A row is durable
and visible to every later read once its `on_done` was called without an error. Until then it may be there or not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.chunk import Fragment, decode_chunk
from tsdb.codec.chunk.key import ChunkKey
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.series_record import Announcement
from tsdb.model.errors import CorruptData, TsdbError
from tsdb.model.window import ceil_to, floor_to

OnDone = Callable[[TsdbError | None], None]


@dataclass(frozen=True, slots=True)
class WindowRange:
    """Windows that start in [start_ms, end_ms)."""

    start_ms: int
    end_ms: int

    @classmethod
    def touching(cls, start_ms: int, end_ms: int, window_ms: int) -> WindowRange:
        """The windows that hold any sample time of [start_ms, end_ms); an empty range touches no window."""
        if end_ms <= start_ms:
            return cls(start_ms, start_ms)
        return cls(floor_to(start_ms, window_ms), ceil_to(end_ms, window_ms))


@dataclass(frozen=True, slots=True)
class RowSplit:
    """A share of all rows: those in (after, through] of the order, int64, in which a store has its row keys."""

    after: int
    through: int


class HistoryRow(Protocol):
    """Samples as a store keeps them. key: their place. size: bytes that the store read for them."""

    @property
    def key(self) -> ChunkKey: ...

    @property
    def size(self) -> int: ...

    def fragment(self) -> Fragment:
        """The samples. Raises CorruptData, UnknownVersion."""


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """One stored record of the `chunks` topic. value: a chunk (docs/formats/chunk.md), not decoded."""

    key: ChunkKey
    value: bytes

    @property
    def size(self) -> int:
        return len(self.value)

    def fragment(self) -> Fragment:
        """The decoded chunk. Raises CorruptData (corrupt_chunk) also for a chunk under the key of another."""
        fragment = decode_chunk(self.value)
        if (fragment.pack_id, fragment.window_start_ms) != (self.key.pack_id, self.key.window_start_ms):
            raise CorruptData(
                f"chunk is of pack {fragment.pack_id:016x}, window {fragment.window_start_ms} ms, and not of its key's"
                f" pack {self.key.pack_id:016x}, window {self.key.window_start_ms} ms",
                reason="corrupt_chunk",
            )
        return fragment


@dataclass(frozen=True, slots=True)
class WantedSeries:
    """Series that a read is for. series_ids: uint64, ascending. names: computes their metric names, maybe more."""

    series_ids: NDArray[np.uint64]
    names: Callable[[], Collection[bytes]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A claim about one partition: history holds every sample below `position` that is before `emitted_through_ms`.

    position: X of a progress marker, an offset of the log topic with `topic_id`.
    """

    topic_id: str
    partition: int
    position: int
    emitted_through_ms: int


@dataclass(frozen=True, slots=True)
class HistoryHole:
    """A named loss, and whether an operator accepted it: an accepted hole no longer makes reads fail."""

    hole: HoleRecord
    accepted: bool


SeriesPiece = list[tuple[Announcement, int]]
"""Rows of the series index: an announcement and its partition, as `write_series` takes them."""


@dataclass(frozen=True, slots=True)
class SeriesIndexRows:
    """Series of one (epoch, metric name), ascending by id.

    series_id, pack_id: uint64 (n,). partition: int32 (n,). labels: canonical labels of each series.
    """

    series_id: NDArray[np.uint64]
    pack_id: NDArray[np.uint64]
    partition: NDArray[np.int32]
    labels: list[bytes]


class ChunkSink(Protocol):
    """The store that a loader writes to. Thread-safe; a context manager.

    Every write is asynchronous: it returns when the row is sent or queued. `on_done` is called exactly once, from a
    thread of the sink or from the caller's thread during the call, with None or an error: Unavailable (the sink does
    not answer, or not in time: the row may or may not be stored, write again) or Overloaded (refused because of load:
    write again, slower). `on_done` must neither block nor write.

    The bytes that wait for an answer are bounded (`HistorySettings.inflight_bytes_max`). At the bound a write waits for
    capacity, at most `write_timeout_s`, and then raises Overloaded (inflight_full). A write that cannot begin without a
    connection raises Unavailable; a write that can never succeed raises InvalidRequest (chunk_too_large,
    key_out_of_range). A write that raises does not call `on_done`.
    """

    def write(self, key: ChunkKey, value: bytes, on_done: OnDone) -> None:
        """Put one row, replacing a row with the same key.

        A sink that decodes chunks answers CorruptData or UnknownVersion for a chunk that it cannot decode.
        """

    def delete_covered(self, keys: Sequence[ChunkKey], on_done: OnDone) -> None:
        """Delete rows; a missing row is not an error. on_done is called once, after the last row."""

    def write_loaded(self, loaded: Loaded, on_done: OnDone) -> None:
        """Record that history has everything below `position`. The highest (position, emitted_through_ms) is kept."""

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        """`loaded` by partition, of this incarnation of the log, without withdrawn claims (tsdb.history.claims). Raises
        Unavailable, Overloaded."""

    def write_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        """Put a hole. A repeat is the same hole; an accepted hole stays accepted."""

    def delete_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        """Delete a hole whose samples came after all."""

    def write_series(self, announcement: Announcement, partition: int, on_done: OnDone) -> None:
        """Put one (series, epoch), and the metric name in that epoch."""

    def forget(self) -> None:
        """Forget which rows were written, because the history was emptied or replaced. Deletes no rows."""

    def close(self) -> None:
        """Wait for the writes in flight, at most `write_timeout_s`, and release. A second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class HistoryReads(Protocol):
    """The reads of a querier, method by method with the contracts of ChunkStore. Thread-safe.

    A store without packs gives batches of whole series of the asked packs instead, each batch with its own number for a
    pack_id, and needs `wanted`.
    """

    def read(
        self, pack_ids: Sequence[int], windows: WindowRange, wanted: WantedSeries
    ) -> Iterator[Sequence[HistoryRow]]: ...

    def loaded(self, topic_id: str) -> dict[int, Loaded]: ...

    def holes(self, partitions: Collection[int] | None, start_ms: int, end_ms: int) -> list[HistoryHole]: ...

    def metric_names(self, epoch: int) -> list[bytes]: ...

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows: ...


class ClosableReads(HistoryReads, Protocol):
    """HistoryReads with a connection."""

    def close(self) -> None: ...


@runtime_checkable
class IndexVersions(Protocol):
    """A history that knows itself when series came into its index that are older than `loaded`."""

    def index_version(self) -> int | None:
        """A number that changes with them. Raises as a read."""


class ChunkStore(ChunkSink, Protocol):
    """A sink that can also be read, for queriers and batch jobs.

    Every read raises Unavailable or Overloaded as a write does, and CorruptData (corrupt_row) for a row that no loader
    can have written.
    """

    def read(
        self, pack_ids: Sequence[int], windows: WindowRange, wanted: WantedSeries | None = None
    ) -> Iterator[list[ChunkRow]]:
        """All rows of these packs in these windows: every kind, every part. wanted: rows without any of these series
        may be left out.

        Rows come in pieces of at most some MiB, none empty, each of one pack; packs in the order of pack_ids, rows of a
        pack ascending by (window, order, kind, part). More is fetched ahead within a bound. Stop early by closing the
        iterator. Packs must be distinct. Costs one statement per pack and month, also without rows: narrow the range to
        the epochs of the series.
        """

    def keys(self, pack_id: int, windows: WindowRange) -> list[ChunkKey]:
        """Keys of one pack's rows in these windows, in the order of `read`. Fetches no values."""

    def row_splits(self, count: int) -> list[RowSplit]:
        """About `count` splits that hold every row once. The rows of a split lie on the same servers."""

    def chunk_bytes(self) -> int:
        """A quick estimate of the bytes of all chunks; 0 if the store has no estimate yet."""

    def scan(self, split: RowSplit, windows: WindowRange | None = None) -> Iterator[list[ChunkRow]]:
        """All rows of a split, in pieces as in `read`, one row key after another. windows: fetch rows of these windows
        alone; None: of all.
        """

    def loaded_topics(self) -> list[str]:
        """Topic ids of the logs that `loaded` has rows of, ascending: several after a log topic was made anew."""

    def accept_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        """Mark a hole as accepted, so that reads no longer fail for it."""

    def holes(self, partitions: Collection[int] | None, start_ms: int, end_ms: int) -> list[HistoryHole]:
        """Holes of these partitions (None: of all) that touch sample time [start_ms, end_ms), also accepted holes."""

    def epochs(self) -> list[int]:
        """Index epochs with any series, ascending."""

    def metric_names(self, epoch: int) -> list[bytes]:
        """Metric names with a series in this index epoch, ascending; b"" for series without a name."""

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        """Series of one metric name in an index epoch."""

    def scan_series(self) -> Iterator[SeriesPiece]:
        """The whole series index, each row once, in any order, in pieces of at most some 1,000 rows, none empty."""
