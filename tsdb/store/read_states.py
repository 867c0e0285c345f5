"""Read states: the states of the partitions that one read looks at, and the staleness and holes that it accepts.

Between two steps of the replay nothing changes, and most reads find the same partition states as the read before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import is_

from tsdb.answer.spec import ReadOptions
from tsdb.answer.state import MemoryState, hole_error
from tsdb.head.head import HeadState
from tsdb.store.partition import Partition, ReadinessSnapshot


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By default a read accepts neither. max_lag_ms: refuse a larger lag; None: the store's bound applies."""

    allow_stale: bool = False
    allow_holes: bool = False
    max_lag_ms: int | None = None

    @classmethod
    def of(cls, options: ReadOptions, max_lag_ms: int | None = None) -> Tolerance:
        """The tolerance that a read states. max_lag_ms: the server's, for a read without its own."""
        own = options.max_lag_ms
        return cls(options.allow_stale, options.allow_holes, max_lag_ms if own is None else own)

    def check_fresh(self, snapshot: ReadinessSnapshot, end_ms: int | None) -> None:
        """Raises Unavailable when the partition is further behind than an answer up to end_ms accepts. None: the answer
        is all that the partition has."""
        if not self.allow_stale and (snapshot.readiness.reason or self.max_lag_ms is not None):
            snapshot.check_fresh(self.max_lag_ms, end_ms)

    def check_holes(self, states: Iterable[MemoryState], start_ms: int, end_ms: int) -> None:
        """Raises HoleInRange naming the first hole that touches [start_ms, end_ms), unless holes are accepted."""
        if not self.allow_holes:
            for state in states:
                for hole in state.holes_in(start_ms, end_ms):
                    raise hole_error(hole)


@dataclass(frozen=True, slots=True, eq=False)
class ReadStates:
    """states: ascending by partition. behind: snapshots of partitions that an answer may have to warn of.
    complete_from_ms: from this time on all partitions are complete; None: all of them hold their whole log. holed: the
    states with a hole."""

    states: tuple[MemoryState, ...]
    behind: tuple[ReadinessSnapshot, ...]
    complete_from_ms: int | None
    holed: tuple[MemoryState, ...]

    @classmethod
    def of(cls, states: Sequence[MemoryState], snapshots: Sequence[ReadinessSnapshot]) -> ReadStates:
        """One snapshot for each state."""
        starts = [state.coverage_start_ms for state in states if not state.from_start]
        return cls(
            tuple(states),
            tuple([one for one in snapshots if one.is_behind]),
            max(starts, default=None),
            tuple([state for state in states if state.holes]),
        )

    def warnings(self, end_ms: int | None) -> tuple[str, ...]:
        """Sentences on samples that an answer up to end_ms may lack because partitions are behind the log."""
        return tuple(filter(None, (one.warning(end_ms) for one in self.behind))) if self.behind else ()

    def check_coverage(self, start_ms: int) -> None:
        """As MemoryState.check_coverage, for each partition."""
        if self.complete_from_ms is not None and start_ms < self.complete_from_ms:
            for state in self.states:
                state.check_coverage(start_ms)


class ReadStatesCache:
    """The states of the last read. Thread-safe."""

    def __init__(self) -> None:
        self._last: tuple[list[ReadinessSnapshot], list[HeadState], ReadStates] | None = None

    def of(
        self, partitions: Sequence[Partition], snapshots: list[ReadinessSnapshot], heads: list[HeadState]
    ) -> ReadStates:
        """The states of these partitions: the last ones, if all readiness snapshots and head states are the same
        objects. Equality by identity is enough: the objects are immutable."""
        last = self._last  # Read once: any thread may replace it.
        if (
            last is not None
            and len(last[0]) == len(snapshots)
            and all(map(is_, last[0], snapshots))
            and all(map(is_, last[1], heads))
        ):
            return last[2]
        states = [p.memory_state(one, head) for p, one, head in zip(partitions, snapshots, heads, strict=True)]
        found = ReadStates.of(states, snapshots)
        self._last = snapshots, heads, found
        return found
