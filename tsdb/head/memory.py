"""Head memory: the bytes of one head against its limits. The sum uses array sizes and walks no data.

Labels and samples have separate limits. Labels may take half of the hard limit, so that a flood of series cannot push
out the samples of all others. A limit is checked before memory is taken, never after.
"""

from __future__ import annotations

from collections.abc import Callable

from tsdb.head.exemplars import HeadExemplars
from tsdb.head.slices.contents import Contents
from tsdb.index.index import SeriesIndex
from tsdb.model.errors import Overloaded

LABELS_PART = 2


class HeadMemory:
    """packs: returns the bytes of the pack cache. Used by the writer thread; `bytes` by any thread."""

    def __init__(
        self,
        partition: int,
        contents: Contents,
        index: SeriesIndex,
        packs: Callable[[], int],
        exemplars: HeadExemplars,
    ) -> None:
        self._partition = partition
        self._exemplars = exemplars
        self._contents = contents
        self._index = index
        self._packs = packs

    @property
    def bytes(self) -> int:
        """Slices, late list, ring, label index with its caches, pack cache, exemplars."""
        return self._contents.bytes + self._index.bytes() + self._packs() + self._exemplars.bytes

    @property
    def over_soft(self) -> int:
        """Bytes above the soft limit; negative when below it."""
        return self.bytes - self._contents.limits.memory_soft_bytes

    def is_tight(self) -> bool:
        """Whether the head is above the soft limit, or its labels above three quarters of their limit."""
        labels_max = self._contents.limits.memory_hard_bytes // LABELS_PART
        return self.over_soft > 0 or self._index.bytes() > labels_max // 4 * 3

    def check_samples(self) -> None:
        """Raises Overloaded (memory_hard) when no more samples may be taken."""
        limit = self._contents.limits.memory_hard_bytes
        if self.bytes > limit:
            raise self._full(f"holds {self.bytes} bytes; its share of memory_hard_bytes is {limit}", limit, self.bytes)

    def check_labels(self) -> None:
        """Raises Overloaded (memory_hard) when no more series may be taken."""
        self.check_samples()
        held, limit = self._index.bytes(), self._contents.limits.memory_hard_bytes // LABELS_PART
        if held > limit:
            raise self._full(
                f"holds {held} bytes of labels; its limit is {limit}, 1/{LABELS_PART} of its share of"
                " memory_hard_bytes",
                limit,
                held,
            )

    def _full(self, what: str, limit: int, held: int) -> Overloaded:
        return Overloaded(
            f"partition {self._partition} {what}: nothing more is taken until slices are dropped or series end",
            reason="memory_hard",
            limit=limit,
            held=held,
        )
