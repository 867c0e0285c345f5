"""Offset tracker: which records of one partition are finished, exactly, in any order of completion.

State: the offsets in the order read, one byte each for finished, and the index of the first unfinished one. Records are
addressed by `slot`, their index in that order, so gaps in the offsets cost nothing. One thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

TRIM_FROM = 8_192  # Finished slots at the front are removed in blocks, because the removal of one moves all others.
NO_RUNS: NDArray[np.int64] = np.empty((0, 2), np.int64)


class OffsetTracker:
    """Starts at `position`. finished: int64 (k, 2), runs [start, end) above it that a commit marks as finished."""

    def __init__(self, position: int, finished: NDArray[np.int64] = NO_RUNS) -> None:
        self._offsets = array("q")
        self._done = bytearray()
        self._low = 0  # Index of the first slot that may be unfinished.
        self._trimmed = 0  # Slots removed from the front.
        self._next_offset = position
        self._restored = finished
        self._restored_at = 0  # The first run that ends above the offsets read so far.
        self.unfinished = 0

    @property
    def position(self) -> int:
        """The lowest unfinished offset. When all records that were read are finished: the next offset to read."""
        low = self._done.find(0, self._low)
        if low < 0:
            self._low = len(self._done)
            self._trim()
            return self._next_offset
        self._low = low
        if low >= TRIM_FROM:
            self._trim()
        return self._offsets[self._low]

    @property
    def next_offset(self) -> int:
        return self._next_offset

    @property
    def restored(self) -> bool:
        """Whether the commit marks offsets not read yet as finished."""
        return self._restored_at < len(self._restored)

    def add(self, offset: int) -> int | None:
        """Add a read record, above all before it; returns its slot, or None when the commit marks it as finished."""
        assert offset >= self._next_offset, f"offset {offset} after {self._next_offset - 1}"
        known = self._restored_at < len(self._restored) and self._is_restored(offset)
        self._next_offset = offset + 1
        self._offsets.append(offset)
        self._done.append(known)
        if known:
            return None
        self.unfinished += 1
        return self._trimmed + len(self._done) - 1

    def add_block(self, offsets: NDArray[np.int64]) -> tuple[int, NDArray[np.bool_]]:
        """Does what `add` does, for int64 (n,), ascending. Returns the first slot (the others follow), and which rows
        were finished before."""
        first, last = int(offsets[0]), int(offsets[-1])
        assert first >= self._next_offset, f"offset {first} after {self._next_offset - 1}"
        at = np.searchsorted(self._restored[:, 1], offsets, side="right")
        starts = np.append(self._restored[:, 0], np.iinfo(np.int64).max)
        known = starts[at] <= offsets
        while self._restored_at < len(self._restored) and self._restored[self._restored_at, 1] <= last:
            self._restored_at += 1
        slot = self._trimmed + len(self._done)
        self._next_offset = last + 1
        self._offsets.frombytes(np.ascontiguousarray(offsets, np.int64).tobytes())
        self._done += known.tobytes()
        self.unfinished += len(offsets) - int(known.sum())
        return slot, known

    def pass_over(self, offsets: Iterable[int], last: int) -> None:
        """Add records that are finished already, ascending up to `last`, above all before them."""
        self._next_offset = last + 1
        if self.unfinished:  # Otherwise the position is past these offsets.
            self._offsets.extend(offsets)
            self._done += b"\1" * (len(self._offsets) - len(self._done))

    def finish(self, slot: int) -> None:
        """Mark the record of a slot as finished. Call it once for each slot."""
        at = slot - self._trimmed
        assert not self._done[at], f"offset {self._offsets[at]} finished twice"
        self._done[at] = 1
        self.unfinished -= 1

    def finish_block(self, slot: int, count: int) -> None:
        """Mark the records of `count` consecutive slots as finished."""
        at = slot - self._trimmed
        assert not any(self._done[at : at + count]), f"offsets from {self._offsets[at]} on finished twice"
        self._done[at : at + count] = b"\1" * count
        self.unfinished -= count

    def reached(self, next_offset: int) -> None:
        """All offsets below next_offset were read, though the last of them may have no record."""
        self._next_offset = max(self._next_offset, next_offset)

    def admits(self, offset: int, map_bytes_max: int) -> bool:
        """Whether the map of finished offsets fits map_bytes_max in any order of completion, once this offset is
        tracked.
        """
        return not self.unfinished or self.admits_block(offset, offset, 1, map_bytes_max)

    def admits_block(self, first: int, last: int, count: int, map_bytes_max: int) -> bool:
        """Does what `admits` does, for `count` offsets at once. If the last of them is admitted, each is."""
        position = self.position if self.unfinished else first
        span = max(last + 1, self._restored_end()) - position
        slots = len(self._done) - self._low + count + 2 * len(self._restored)
        lengths_bytes = (slots + 1) * _varint_bytes(span)
        return min(-(-span // 8), lengths_bytes) <= map_bytes_max

    def finished_runs(self) -> NDArray[np.int64]:
        """Runs [start, end) of finished offsets above the position, ascending and apart, int64 (k, 2).

        Offsets without a record belong to the run before them.
        """
        position = self.position
        own = self._own_runs()
        rest = self._restored[np.searchsorted(self._restored[:, 1], self._next_offset, side="right") :]
        if not len(rest):
            return own
        rest = np.maximum(rest, max(self._next_offset, position))
        return _joined(np.concatenate([own, rest]))

    def _own_runs(self) -> NDArray[np.int64]:
        done = np.frombuffer(bytes(self._done[self._low :]), np.int8)
        if not done.any():
            return NO_RUNS
        offsets = np.frombuffer(self._offsets[self._low :].tobytes(), np.int64)
        edges = np.flatnonzero(np.diff(done, prepend=np.int8(0), append=np.int8(0)))
        ends = np.append(offsets, offsets[-1] + 1)
        return ends[edges].reshape(-1, 2)

    def _is_restored(self, offset: int) -> bool:
        runs = self._restored
        while self._restored_at < len(runs) and runs[self._restored_at, 1] <= offset:
            self._restored_at += 1
        return self._restored_at < len(runs) and bool(runs[self._restored_at, 0] <= offset)

    def _restored_end(self) -> int:
        return int(self._restored[-1, 1]) if self._restored_at < len(self._restored) else 0

    def _trim(self) -> None:
        del self._offsets[: self._low]
        del self._done[: self._low]
        self._trimmed += self._low
        self._low = 0


def _varint_bytes(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))


def _joined(runs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Merge ascending runs that touch."""
    breaks = np.flatnonzero(runs[1:, 0] > runs[:-1, 1])
    starts = runs[np.concatenate([[0], breaks + 1]), 0]
    ends = runs[np.concatenate([breaks, [len(runs) - 1]]), 1]
    return np.stack([starts, ends], axis=1)
