"""Narrow: selects series of a fragment. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.fragment import Fragment
from tsdb.query.history.stretch import Stretch

EVER = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def narrow(fragment: Fragment, wanted: NDArray[np.uint64]) -> Fragment | None:
    """The samples of the series `wanted` (uint64, ascending); None when the fragment has none of them."""
    stretch = Stretch(wanted, *EVER)
    stretch.add(fragment)
    return stretch.take()
