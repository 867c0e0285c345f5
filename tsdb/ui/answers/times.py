"""Times of a graph: its range, and steps that do not move while the range does."""

from __future__ import annotations

from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.parameters import POINTS_MAX, QuerySteps, integer
from tsdb.ui.link import range_ms

STEP_MS_MIN = 1000
STEPS = 480  # About one for two pixels of a wide graph.
STEPS_ASKED_MAX = 2000
_NICE_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)


def times_of(call: ApiCall) -> tuple[int, int]:
    """Range (start_ms, end_ms) of a request, from `start` and `end`, or from `range` before now. Raises
    BadParameter."""
    if call.form.get("start") and call.form.get("end"):
        start_ms, end_ms = _integer(call, "start"), _integer(call, "end")
        if end_ms <= start_ms:
            raise BadParameter("end", "the range ends before it begins")
        return start_ms, end_ms
    try:
        length_ms = range_ms(call.form.get("range"))
    except ValueError as error:
        raise BadParameter("range", error) from None
    now_ms = call.sources.clock.now_ms()
    return now_ms - length_ms, now_ms


def steps_of(start_ms: int, end_ms: int, points: int = STEPS) -> QuerySteps:
    """Steps of a nice length, at multiples of it, so that equal times of two graphs have equal values."""
    wanted_ms = max(STEP_MS_MIN, (end_ms - start_ms) // max(1, min(points, POINTS_MAX)))
    day_ms = 86_400_000
    step_ms = next((1000 * one for one in _NICE_S if 1000 * one >= wanted_ms), -(-wanted_ms // day_ms) * day_ms)
    return QuerySteps(
        -(-start_ms // step_ms) * step_ms, max(end_ms // step_ms, -(-start_ms // step_ms)) * step_ms, step_ms
    )


def points_of(call: ApiCall) -> int:
    """About how many steps the caller wants: `points`. Raises BadParameter."""
    wanted = _integer(call, "points") if call.form.get("points") else STEPS
    return max(1, min(wanted, STEPS_ASKED_MAX))


def _integer(call: ApiCall, name: str) -> int:
    try:
        found = integer(call.form.get(name))
    except ValueError as error:
        raise BadParameter(name, error) from None
    if abs(found) > 1 << 53:
        raise BadParameter(name, f"{found} is no time in milliseconds since 1970")
    return found
