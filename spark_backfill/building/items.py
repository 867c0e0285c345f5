"""Work items: values sent to tasks, one item a task. The log alone determines the records of an item."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.chunks.late_scan import ALL_WINDOWS, Windows


@dataclass(frozen=True, slots=True)
class BaseItem:
    """Base chunks and markers of a partition's windows with a start in [start_ms, end_ms). All of them are closed.

    late_first, late_end: records whose late chunks and holes are made in the same read of the log, as those of a
    LateItem; without any the two are equal. They lie between the decision offsets of the window before and of the only
    window of the item. again: their base may exist already, so only a whole window may replace it.
    """

    partition: int
    start_ms: int
    end_ms: int
    late_first: int = 0
    late_end: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True)
class LateItem:
    """Late chunks and holes of the records [first_offset, end_offset). Both offsets begin a late minute.

    windows: take only late samples of these windows, and no holes.
    """

    partition: int
    first_offset: int
    end_offset: int
    windows: Windows = ALL_WINDOWS


Item = BaseItem | LateItem
