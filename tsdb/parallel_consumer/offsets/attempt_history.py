"""AttemptHistory: the attempts that a commit records for records that are not read again yet. They are read in offset
order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from tsdb.parallel_consumer.offsets.metadata import AttemptCounts


class AttemptHistory:
    """Attempts of one partition. It is falsy once all its records were read again."""

    def __init__(self, attempts: Iterable[AttemptCounts] = ()) -> None:
        self._recorded = deque(sorted(attempts, key=lambda one: one.offset))

    def __len__(self) -> int:
        return len(self._recorded)

    def take(self, first: int, end: int) -> list[AttemptCounts]:
        """Pop the attempts recorded for offsets [first, end), clipped to it. Entries before `first` were compacted
        away.
        """
        found: list[AttemptCounts] = []
        while self._recorded and self._recorded[0].offset < end:
            one = self._recorded.popleft()
            start, stop = max(one.offset, first), min(one.end, end)
            if start < stop:
                found.append(replace(one, offset=start, span=stop - start))
            if one.end > end:
                self._recorded.appendleft(replace(one, offset=end, span=one.end - end))
                break
        return found

    def remaining(self, position: int) -> list[AttemptCounts]:
        """Attempts recorded for offsets from the position on."""
        self.take(position, position)
        return list(self._recorded)


def rows_at_once(rows: int, crashes: int, crashes_max: int | None) -> int:
    """How many rows of a range run at once, after it was running at `crashes` crashes.

    Fewer rows after each crash; at the last allowed crash one row runs alone.
    """
    if crashes_max is None or crashes == 0:
        return rows
    left = crashes_max - 1 - crashes
    return 1 if left <= 0 else -(-rows // max(1, round(rows ** (1 / (left + 1)))))
