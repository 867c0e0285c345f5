"""Time sets: the durations that all processes must share. Slice lengths: chosen by each store."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.model.errors import ConfigMismatch

_S = 1000
_MIN = 60 * _S
_H = 60 * _MIN
_D = 24 * _H


@dataclass(frozen=True, slots=True)
class TimeSet:
    """Durations in milliseconds, the same for all processes of one log (kept in `meta`).

    window_ms: a chunk's stretch of sample time. grace_ms: a window stays open for this time after its end.
    ahead_ms: readers ignore samples further ahead of their record's broker time.
    gateway_ahead_ms: the gateway refuses from here.
    late_minute_ms: the unit in which late samples are emitted. spread_ms: the emission of a window is paced over this
    time.
    least_hold_ms: the shortest hold of any store. accept_past_ms: the gateway refuses older samples.
    """

    name: str
    window_ms: int
    grace_ms: int
    ahead_ms: int
    gateway_ahead_ms: int
    late_minute_ms: int
    spread_ms: int
    least_hold_ms: int
    accept_past_ms: int


@dataclass(frozen=True, slots=True)
class SliceLengths:
    """Lengths of a head's slices in ms: `small_ms` when sealed, merged into `large_ms`, a multiple of small_ms."""

    small_ms: int
    large_ms: int

    def __post_init__(self) -> None:
        if self.small_ms <= 0 or self.large_ms % self.small_ms:
            raise ConfigMismatch(
                f"slice lengths {self.small_ms} ms and {self.large_ms} ms: the large must be a multiple of the small",
                reason="slice_lengths",
            )


PRODUCTION = TimeSet("production", 4 * _H, 5 * _MIN, 10 * _MIN, 5 * _MIN, _MIN, 2 * _H, 10 * _H, 5 * _D)
DEMO = TimeSet("demo", 30 * _S, 2 * _S, 5 * _S, 3 * _S, _S, 5 * _S, 90 * _S, 5 * _D)
# `tsdb demo` uses it, which waits until memory has dropped a range. Chunk stage and loader may lag by 15 s.
BRIEF = TimeSet("brief", 20 * _S, 2 * _S, 5 * _S, 3 * _S, _S, 3 * _S, 45 * _S, 5 * _D)

_TIME_SETS = {time_set.name: time_set for time_set in (PRODUCTION, DEMO, BRIEF)}
_SLICES = {
    "production": SliceLengths(10 * _MIN, _H),
    "demo": SliceLengths(2 * _S, 10 * _S),
    "brief": SliceLengths(_S, 5 * _S),
}


def time_set(name: str) -> TimeSet:
    """The named time set. Raises ConfigMismatch (time_set) for an unknown name."""
    if name not in _TIME_SETS:
        raise ConfigMismatch(f"time set {name!r} is unknown; known: {', '.join(_TIME_SETS)}", reason="time_set")
    return _TIME_SETS[name]


def slice_lengths(time_set_name: str) -> SliceLengths:
    """Default slice lengths of a store under a time set."""
    return _SLICES[time_set(time_set_name).name]
