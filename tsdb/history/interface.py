"""History as the rest of the system sees it: rows of chunks, what is loaded, holes, and the series of the past.

Implementations (`tsdb.history.sqlite`, `tsdb.history.cassandra`) pass one contract suite. Writes are blind upserts that
can be repeated in any number and order: no read comes before one, none depends on another. A row is durable and visible
to every later read once its `on_done` was called without an error. Until then it may be either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk_key import ChunkKey
from tsdb.codec.chunk_marker import HoleRecord
from tsdb.codec.series_record import Announcement
from tsdb.model.errors import TsdbError
from tsdb.model.window import ceil_to, floor_to

OnDone = Callable[[TsdbError | None], None]


@dataclass(frozen=True, slots=True)
class WindowRange:
    """Windows that start in [start_ms, end_ms)."""

    start_ms: int
    end_ms: int

    @classmethod
    def touching(cls, start_ms: int, end_ms: int, window_ms: int) -> WindowRange:
        """The windows that hold any sample time of [start_ms, end_ms); none when that is empty."""
        if end_ms <= start_ms:
            return cls(start_ms, start_ms)
        return cls(floor_to(start_ms, window_ms), ceil_to(end_ms, window_ms))


@dataclass(frozen=True, slots=True)
class TokenRange:
    """Row keys whose token is in (after, through]; tokens are int64 and all of them lie in (TOKEN_MIN, TOKEN_MAX]."""

    after: int
    through: int


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """One record of the `chunks` topic, as it is kept. value: a chunk (docs/formats/chunk.md), not looked into."""

    key: ChunkKey
    value: bytes


@dataclass(frozen=True, slots=True)
class Loaded:
    """What history holds of one partition: every sample below `position` that is before `emitted_through_ms`.

    position: the X of a progress marker, an offset of the log topic with `topic_id`.
    """

    topic_id: str
    partition: int
    position: int
    emitted_through_ms: int


@dataclass(frozen=True, slots=True)
class HistoryHole:
    """A named loss, and whether somebody accepted it: reads no longer refuse for an accepted one."""

    hole: HoleRecord
    accepted: bool


@dataclass(frozen=True, slots=True)
class SeriesIndexRows:
    """Series of one (epoch, metric name), ascending by id.

    series_id, pack_id: uint64 (n,). partition: int32 (n,). labels: canonical, one of each series.
    """

    series_id: NDArray[np.uint64]
    pack_id: NDArray[np.uint64]
    partition: NDArray[np.int32]
    labels: list[bytes]


class ChunkSink(Protocol):
    """Where a loader writes. Thread-safe; a context manager.

    Every write is asynchronous: it returns when the row is on its way, and `on_done` is called exactly once, from a
    thread of the sink or from the caller's during the call, with None or with what failed: Unavailable (the sink is
    away or did not answer in time: the row may or may not be there, write again) or Overloaded (it refused for load:
    write again, slower). `on_done` must neither block nor write.

    The bytes that wait for an answer are bounded (`HistorySettings.inflight_bytes_max`). At the bound a write waits for
    room, for `write_timeout_s` at most, and then raises Overloaded (inflight_full). One that cannot begin because there
    is no connection raises Unavailable; one that can never succeed raises InvalidRequest (chunk_too_large,
    key_out_of_range). A write that raises does not call `on_done`.
    """

    def write(self, key: ChunkKey, value: bytes, on_done: OnDone) -> None:
        """Put one row, in place of one with the same key.

        A sink that looks into chunks answers CorruptData or UnknownVersion for one that cannot be decoded.
        """

    def delete_covered(self, keys: Sequence[ChunkKey], on_done: OnDone) -> None:
        """Delete rows; those that are not there too. on_done is called once, after the last."""

    def write_loaded(self, loaded: Loaded, on_done: OnDone) -> None:
        """Say that all below `position` is there. Of several the highest (position, emitted_through_ms) stands."""

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        """By partition, those written for this incarnation of the log. Raises Unavailable, Overloaded."""

    def write_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        """Note a loss; again is the same hole, and one that was accepted stays so."""

    def delete_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        """Forget a loss that was made good."""

    def write_series(self, announcement: Announcement, partition: int, on_done: OnDone) -> None:
        """Put one (series, epoch), and the name of its metric in that epoch."""

    def forget(self) -> None:
        """Take nothing for written any more: somebody emptied or replaced what is behind this. Drops nothing there."""

    def close(self) -> None:
        """Wait for what is on its way, within `write_timeout_s`, and release; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ChunkStore(ChunkSink, Protocol):
    """A sink that can be read as well: history as queriers and batch jobs use it.

    Every read raises Unavailable or Overloaded as a write does, and CorruptData (corrupt_row) for a row that cannot be
    ours.
    """

    def read(self, pack_ids: Sequence[int], windows: WindowRange) -> Iterator[list[ChunkRow]]:
        """All rows of these packs in these windows: every kind, every part.

        Comes in pieces of some MiB at most, none empty, each of one pack; packs in the order asked, rows of a pack
        ascending by (window, order, kind, part). More is fetched ahead within a bound. Stop early by closing the
        iterator. Packs must be distinct. Costs a statement a pack and month also where nothing is: narrow the range
        to the epochs that the series are of.
        """

    def windows(self, pack_id: int, windows: WindowRange) -> list[tuple[ChunkKey, int]]:
        """Keys of one pack's rows with the bytes of their values, in the order of `read`."""

    def token_ranges(self, count: int) -> list[TokenRange]:
        """About `count` ranges that hold every row once, none across the borders of what one server owns."""

    def chunk_bytes(self) -> int:
        """About the bytes of all chunks, quickly told; 0 where the store does not know, as a new one may not."""

    def scan(self, tokens: TokenRange) -> Iterator[list[ChunkRow]]:
        """All rows of a token range in pieces as those of `read`, one row key after another."""

    def accept_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        """Mark a loss as accepted."""

    def holes(self, partitions: Collection[int] | None, start_ms: int, end_ms: int) -> list[HistoryHole]:
        """Holes of these partitions (None: of all) that touch sample time [start_ms, end_ms), accepted ones too."""

    def epochs(self) -> list[int]:
        """Index epochs with any series, ascending."""

    def metric_names(self, epoch: int) -> list[bytes]:
        """Names with a series in this index epoch, ascending; b"" for series without one."""

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        """Series of one metric name in an index epoch."""
