"""Reduction: fewer points of a line, for the eye. The lowest and the highest value of each stretch of steps stay, so no
peak is lost. Numbers beside the graph come from all values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Drawn:
    """Points of lines. at: int64 (series, points), indexes of steps, ascending in each row. values: float64 (series,
    points), NaN where a line has a gap."""

    at: NDArray[np.int64]
    values: NDArray[np.float64]


def reduced(values: NDArray[np.float64], present: NDArray[np.bool_], points: int) -> Drawn:
    """At most `points` points of each series, at least 2. values, present: (series, steps)."""
    series, steps = values.shape
    gaps = np.where(present, values, np.nan)
    if steps <= max(points, 2):
        return Drawn(np.broadcast_to(np.arange(steps), (series, steps)), gaps)
    size = -(-steps // max(points // 2, 1))
    stretches = -(-steps // size)
    padded = np.full((series, stretches * size), np.nan)
    padded[:, :steps] = gaps
    parts = padded.reshape(series, stretches, size)
    absent = np.isnan(parts)
    lowest = np.where(absent, np.inf, parts).argmin(axis=2)
    highest = np.where(absent, -np.inf, parts).argmax(axis=2)
    # An empty stretch has its first step twice. Only the last stretch is padded, and never at its first step.
    pair = np.sort(np.stack((lowest, highest), axis=2), axis=2)
    at = (pair + (np.arange(stretches) * size)[None, :, None]).reshape(series, stretches * 2)
    return Drawn(at, np.take_along_axis(padded, at, axis=1))


def thinned(values: NDArray[np.float64], present: NDArray[np.bool_], points: int) -> Drawn:
    """At most `points` points, the same steps of every series: stacked lines are added step by step."""
    series, steps = values.shape
    kept = np.arange(0, steps, max(1, -(-steps // max(points, 1))))
    gaps = np.where(present[:, kept], values[:, kept], np.nan)
    return Drawn(np.broadcast_to(kept, (series, len(kept))), gaps)
