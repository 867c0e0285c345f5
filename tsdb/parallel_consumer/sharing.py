"""Sharing: how much of a bound each partition may use, so that whoever holds on to its records leaves room for others.

A quarter of the bound is divided among the partitions, and of its part nobody else may use anything. The rest goes to
whoever comes first. So together they never pass the bound, however many stand still, and one that does not always has
its part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

OWN_SHARE = 0.25
# A partition crowds the others once it uses so many times what it could still get. Several that are equally slow fill
# the bound before any of them does, as long as nobody else has less than half of its part.
CROWDING = 3


class Sharing:
    """Of one bound, at one moment. used: of each partition. own: the part of each. spare: what is left of the rest.
    in_all: used by all.

    Each may use 1, however small the bound is.
    """

    def __init__(self, bound: int, used: Collection[int]) -> None:
        count = len(used)
        self.bound = max(bound, count, 1)
        self.own = self.bound if count < 2 else max(1, int(self.bound * OWN_SHARE) // count)
        # Below 0 when more came than was asked for, or came before others did.
        self.spare = max(0, self.bound - self._reserved(used))
        self.in_all = sum(used)

    def room(self, used: int) -> int:
        """How much more may come for one that uses so much."""
        return self.spare + max(0, self.own - used)

    def crowds(self, used: int) -> bool:
        """Whether it takes most of what others could still get."""
        return used >= CROWDING * self.room(used)

    def starves(self, used: int) -> bool:
        """Whether it uses so little of its own part that it may run dry when nothing is read."""
        return used * 2 < self.own

    def half_free(self, used: Collection[int]) -> bool:
        """Whether these use less than half of what is theirs or spare."""
        return sum(used) * 2 < self._reserved(used) + self.spare

    def _reserved(self, used: Iterable[int]) -> int:
        return sum(max(one, self.own) for one in used)
