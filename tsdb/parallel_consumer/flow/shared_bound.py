"""SharedBound: decides how much of a bound each partition may use, so that a stuck partition leaves capacity for the
others.

A quarter of the bound is divided into a reserved share per partition. The rest is first come, first served. So the
total stays within the bound even if many partitions are stuck, and a healthy one always has its reserved share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

OWN_SHARE = 0.25
# A partition is over quota once it uses this multiple of the capacity that is left for it. Several equally slow
# partitions fill the bound before any is over quota, as long as no other has less than half of its reserved share.
OVER_QUOTA_FACTOR = 3


class SharedBound:
    """State of one bound. used: use by each partition. own: the reserved share of each. spare: unused part of the rest.
    in_all: use by all.

    Each partition may use at least 1, even if the bound is smaller.

    """

    def __init__(self, bound: int, used: Collection[int]) -> None:
        count = len(used)
        self.bound = max(bound, count, 1)
        self.own = self.bound if count < 2 else max(1, int(self.bound * OWN_SHARE) // count)
        # Clamped, because more may have arrived than was requested, or before other partitions were assigned.
        self.spare = max(0, self.bound - self._reserved(used))
        self.in_all = sum(used)

    def capacity(self, used: int) -> int:
        """How much more a partition may use."""
        return self.spare + max(0, self.own - used)

    def over_quota(self, used: int) -> bool:
        """Whether a partition uses most of the capacity that is left for others."""
        return used >= OVER_QUOTA_FACTOR * self.capacity(used)

    def starves(self, used: int) -> bool:
        """Whether it uses so little of its reserved share that it may run dry when nothing is read."""
        return used * 2 < self.own

    def half_free(self, used: Collection[int]) -> bool:
        """Whether these partitions use less than half of their reserved and spare capacity."""
        return sum(used) * 2 < self._reserved(used) + self.spare

    def _reserved(self, used: Iterable[int]) -> int:
        return sum(max(one, self.own) for one in used)
