"""ValuesInHand: the memory of the vectors that one query holds at a time."""

from __future__ import annotations

from collections.abc import Callable

VALUE_BYTES = 9  # A float64, and whether it is present.


class ValuesInHand:
    """Counts the results of the parts of an expression until the result of the whole replaces them.

    hold: called with the bytes of all values whenever they change; raises when they do not fit. Used by one query, on
    one thread.
    """

    __slots__ = ("_hold", "bytes")

    def __init__(self, hold: Callable[[int], None]) -> None:
        self._hold = hold
        self.bytes = 0

    def admit(self, size: int) -> None:
        """Reserve `size` bytes beside the counted values. The next `replace` releases them."""
        self._hold(self.bytes + size)

    def replace(self, before: int, size: int) -> None:
        """A result of `size` bytes replaces all values that came into hand after there were `before` bytes."""
        self.bytes = before + size
        self._hold(self.bytes)
