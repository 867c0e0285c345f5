"""Derived series by a plain computation: one pass over the samples of a window, in order of time."""

from __future__ import annotations

import math
from collections.abc import Mapping

LastValues = dict[int, float]  # The last value of each series that is not NaN.
Derived = dict[tuple[str, int, int], float]  # (aggregate, series, start of the bucket) -> value


def derived_twin(samples: Mapping[tuple[int, int], float], last: LastValues, resolution_ms: int) -> Derived:
    """samples: the samples of one window by (series, time). `last` is updated for the next window."""
    found: Derived = {}
    for series, ts_ms in sorted(samples):
        key, value = (series, ts_ms // resolution_ms * resolution_ms), samples[series, ts_ms]
        count, total, low, high = (found.get((one, *key)) for one in ("count", "sum", "min", "max"))
        found["count", *key] = 1.0 if count is None else count + 1
        found["sum", *key] = value if total is None else total + value
        found["min", *key] = value if low is None or value < low or math.isnan(low) else low
        found["max", *key] = value if high is None or value > high or math.isnan(high) else high
        found["last", *key] = value
        grown = found.setdefault(("increase", *key), 0.0)
        if not math.isnan(value):
            if series in last:
                found["increase", *key] = grown + (value - last[series] if value >= last[series] else value)
            last[series] = value
    here = {series for series, _ in samples}
    for series in last.keys() - here:
        del last[series]
    return found
