"""Late minutes: cuts the log into them by its watermark, and keeps those that hold late samples until they are emitted.

A late minute is the offsets from the first whose watermark is in it up to the first past it. It ends with the record
that is past it, and is emitted only then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.chunks.late_minute import LateMinute, LateSamples


@dataclass(frozen=True, slots=True)
class EndedMinute:
    """A late minute with samples, and the first offset after it."""

    minute: LateMinute
    next_offset: int


class LateMinutes:
    """From next_offset on. `ended`: to be emitted, oldest first; `current` is still gathered. samples: late ones that
    are not emitted; any thread may look, all else is of one thread."""

    def __init__(self, next_offset: int, late_minute_ms: int, watermark_ms: int) -> None:
        self._length_ms = late_minute_ms
        self._watermark_ms = watermark_ms
        self.current = LateMinute(next_offset)
        self.ended: deque[EndedMinute] = deque()
        self.samples = 0

    @property
    def position(self) -> int:
        """First offset of the oldest minute that is not emitted."""
        return self.ended[0].minute.first_offset if self.ended else self.current.first_offset

    @property
    def end_ms(self) -> int | None:
        """Broker time that ends the current minute; None when it holds nothing that would wait for that."""
        return (self._watermark_ms // self._length_ms + 1) * self._length_ms if self.current.samples else None

    def take_ended(self) -> EndedMinute:
        """Take out the oldest that has ended."""
        taken = self.ended.popleft()
        self.samples -= taken.minute.samples
        return taken

    def take(
        self, offsets: NDArray[np.int64], watermarks: NDArray[np.int64], record: NDArray[np.int64], late: LateSamples
    ) -> None:
        """Records with their watermarks, and the late samples in them; record: in which of the records each lies."""
        minutes = watermarks // self._length_ms
        before = np.append(self._watermark_ms // self._length_ms, minutes[:-1])
        ends = np.flatnonzero(minutes != before)
        if not len(record) and not self.current.samples:
            ends = ends[-1:]  # Minutes without samples leave nothing behind.
        at = 0
        for end, first in zip(ends.tolist(), np.searchsorted(record, ends).tolist(), strict=True):
            self._add(late.part(at, first))
            self.current.end_ms = (int(before[end]) + 1) * self._length_ms
            self.end(int(offsets[end]))
            at = first
        self._add(late.part(at, len(record)))
        self._watermark_ms = int(watermarks[-1])

    def end(self, next_offset: int) -> None:
        """The record at next_offset begins another minute; for the last one, whose end is not among what was taken."""
        if self.current.samples:
            self.ended.append(EndedMinute(self.current, next_offset))
        self.current = LateMinute(next_offset)

    def _add(self, late: LateSamples) -> None:
        if len(late.ts_ms):
            self.current.add(late)
            self.samples += len(late.ts_ms)
