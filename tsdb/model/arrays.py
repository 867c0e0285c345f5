"""Arrays that grow by copies, the memory of several, and the places of ranges."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Element = TypeVar("_Element", bound=np.generic)
_NBYTES = attrgetter("nbytes")


def resized(array: NDArray[_Element], size: int) -> NDArray[_Element]:
    """A copy of `array` with `size` elements; the new elements are not set."""
    grown = np.empty(size, array.dtype)
    grown[: len(array)] = array
    return grown


def joined_ranges(starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """The places starts[i], starts[i] + 1, ... of each of n ranges, one range behind another, int64. starts, lengths:
    (n,); no length is negative."""
    before = np.cumsum(lengths, dtype=np.int64) - lengths
    places: NDArray[np.int64] = np.repeat(starts - before, lengths)
    places += np.arange(len(places))
    return places


def total_bytes(arrays: Iterable[NDArray[Any]]) -> int:
    """Bytes of all arrays together. Each batch of samples asks for it, so no array costs a call of Python."""
    return sum(map(_NBYTES, arrays))
