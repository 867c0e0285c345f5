"""Work items: what one task builds. Values that travel to tasks; what they stand for follows from the log alone."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.chunks.late_scan import ALL_WINDOWS, Windows


@dataclass(frozen=True, slots=True)
class BaseItem:
    """Base chunks and markers of the windows that start in [start_ms, end_ms) of a partition; all of them closed."""

    partition: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class LateItem:
    """Late chunks, and holes, of the records [first_offset, end_offset), both the first offsets of late minutes.

    windows: only late samples of these, and then no holes.
    """

    partition: int
    first_offset: int
    end_offset: int
    windows: Windows = ALL_WINDOWS


Item = BaseItem | LateItem
