"""Arrays that grow by copies."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Element = TypeVar("_Element", bound=np.generic)


def resized(array: NDArray[_Element], size: int) -> NDArray[_Element]:
    """A copy of `array` with `size` elements; the new elements are not set."""
    grown = np.empty(size, array.dtype)
    grown[: len(array)] = array
    return grown
