"""Arrays that grow by copies, the memory of several, the places of ranges, and hashes of numbers."""

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


def csr_places(
    starts: NDArray[np.integer[Any]], rows: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(places, starts) of these rows of a CSR array: the elements `places`, in the order of the rows."""
    lengths = starts[rows + 1] - starts[rows]
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    return joined_ranges(starts[rows], lengths), ends


def splitmix64(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of each number: one step of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
    generators", OOPSLA 2014)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return found


def total_bytes(arrays: Iterable[NDArray[Any]]) -> int:
    """Bytes of all arrays together. Each batch of samples asks for it, so no array costs a call of Python."""
    return sum(map(_NBYTES, arrays))
