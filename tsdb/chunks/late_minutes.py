"""Late minutes: cuts the log into late minutes by its watermark, and keeps those with late samples until they are
emitted.

A late minute is the range of offsets from the first whose watermark is in the minute up to the first whose watermark is
past it. The minute ends with that later record, and is emitted only then.
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
    """Late minutes from next_offset on. `ended`: minutes to emit, oldest first. `current`: the minute that is still
    collected. samples: late samples that are not emitted yet; any thread may read it, everything else belongs to one
    thread."""

    def __init__(self, next_offset: int, late_minute_ms: int, watermark_ms: int) -> None:
        self._length_ms = late_minute_ms
        self._watermark_ms = watermark_ms
        self.current = LateMinute(next_offset)
        self.ended: deque[EndedMinute] = deque()
        self.samples = 0

    @property
    def position(self) -> int:
        """First offset of the oldest minute that is not emitted yet."""
        return self.ended[0].minute.first_offset if self.ended else self.current.first_offset

    @property
    def end_ms(self) -> int | None:
        """Broker time that ends the current minute; None when the minute has no late samples."""
        return (self._watermark_ms // self._length_ms + 1) * self._length_ms if self.current.samples else None

    def take_ended(self) -> EndedMinute:
        """Remove and return the oldest ended minute."""
        taken = self.ended.popleft()
        self.samples -= taken.minute.samples
        return taken

    def take(
        self, offsets: NDArray[np.int64], watermarks: NDArray[np.int64], record: NDArray[np.int64], late: LateSamples
    ) -> None:
        """Add records with their watermarks, and their late samples. record: index of each late sample's record."""
        minutes = watermarks // self._length_ms
        before = np.append(self._watermark_ms // self._length_ms, minutes[:-1])
        ends = np.flatnonzero(minutes != before)
        if not len(record) and not self.current.samples:
            ends = ends[-1:]  # Minutes without late samples produce nothing, so only the last end matters.
        at = 0
        for end, first in zip(ends.tolist(), np.searchsorted(record, ends).tolist(), strict=True):
            self._add(late.part(at, first))
            self.current.end_ms = (int(before[end]) + 1) * self._length_ms
            self.end(int(offsets[end]))
            at = first
        self._add(late.part(at, len(record)))
        self._watermark_ms = int(watermarks[-1])

    def end(self, next_offset: int) -> None:
        """End the current minute: the record at next_offset begins another. Callers use it for the last minute, whose
        end is not in the records given to `take`."""
        if self.current.samples:
            self.ended.append(EndedMinute(self.current, next_offset))
        self.current = LateMinute(next_offset)

    def _add(self, late: LateSamples) -> None:
        if len(late.ts_ms):
            self.current.add(late)
            self.samples += len(late.ts_ms)
