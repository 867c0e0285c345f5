"""Arrays that grow by copies, and the memory of several."""

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


def total_bytes(arrays: Iterable[NDArray[Any]]) -> int:
    """Bytes of all arrays together. Each batch of samples asks for it, so no array costs a call of Python."""
    return sum(map(_NBYTES, arrays))
