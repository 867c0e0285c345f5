"""Numbers outside of vectors and matrices."""

from __future__ import annotations

import math

import numpy as np


def positional(value: float) -> str:
    """The shortest text that reads back, without an exponent: as Prometheus writes a scalar."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return np.format_float_positional(value, trim="-")
