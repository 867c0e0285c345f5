"""Computes compensated sums (Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen",
1974)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper


@helper
def add(value: float, total: float, lost: float) -> tuple[float, float]:
    """(total, lost) after one more value; their sum is the result. Nothing is lost of an infinite total."""
    new = total + value
    if math.isinf(new):
        return new, 0.0
    if abs(total) >= abs(value):
        return new, lost + ((total - new) + value)
    return new, lost + ((value - new) + total)


@helper
def sum_of(values: NDArray[np.float64], first: int, last: int) -> float:
    """Sum of values [first, last)."""
    total, lost = 0.0, 0.0
    for index in range(first, last):
        total, lost = add(values[index], total, lost)
    return total if math.isinf(total) else total + lost


@helper
def mean_of(values: NDArray[np.float64], first: int, last: int) -> float:
    """Mean of values [first, last), not empty. A sum that overflows becomes a running mean."""
    total, lost, mean, running = 0.0, 0.0, 0.0, False
    count = 0.0
    for index in range(first, last):
        count += 1.0
        if not running:
            new, new_lost = add(values[index], total, lost)
            if count == 1.0 or not math.isinf(new):
                total, lost = new, new_lost
                continue
            running = True
            mean, lost = total / (count - 1.0), lost / (count - 1.0)
        share = (count - 1.0) / count
        mean, lost = add(values[index] / count, share * mean, share * lost)
    return mean + lost if running else total / count + lost / count


@helper
def variance_of(values: NDArray[np.float64], first: int, last: int) -> float:
    """Population variance of values [first, last), not empty (Welford, Technometrics 1962)."""
    count, mean, mean_lost, total, lost = 0.0, 0.0, 0.0, 0.0, 0.0
    for index in range(first, last):
        count += 1.0
        delta = values[index] - (mean + mean_lost)
        mean, mean_lost = add(delta / count, mean, mean_lost)
        total, lost = add(delta * (values[index] - (mean + mean_lost)), total, lost)
    return (total + lost) / count
