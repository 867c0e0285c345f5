"""Sparklines: draw the values of a series over time in a few characters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24


def sparkline(
    ts_ms: NDArray[np.int64], values: NDArray[np.float64], start_ms: int, end_ms: int, width: int = WIDTH
) -> str:
    """Bars of the mean finite value in each of `width` equal parts of [start_ms, end_ms); a blank for an empty part.

    The lowest mean is the lowest bar, the highest mean the highest bar; a constant series is in the middle.
    """
    finite = np.isfinite(values)
    cells = (ts_ms[finite] - start_ms) * width // max(end_ms - start_ms, 1)
    known = values[finite]
    scale = float(np.abs(known).max(initial=0.0)) or 1.0
    # Scaled first, since sums of values near the largest float would overflow.
    sums = np.bincount(cells, known / scale, minlength=width)[:width]
    counts = np.bincount(cells, minlength=width)[:width]
    means = np.divide(sums, counts, out=np.full(width, np.nan), where=counts > 0)
    return "".join(_bar(mean, *_bounds(means)) for mean in means.tolist())


def _bounds(means: NDArray[np.float64]) -> tuple[float, float]:
    known = means[np.isfinite(means)]
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)


def _bar(mean: float, low: float, high: float) -> str:
    if np.isnan(mean):
        return " "
    if high == low:
        return BARS[len(BARS) // 2]
    return BARS[min(int((mean - low) / (high - low) * len(BARS)), len(BARS) - 1)]
