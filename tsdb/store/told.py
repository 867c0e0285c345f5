"""Told: what an answer says of its partitions, put together once for as long as it is the same.

Between two steps of the replay nothing moves, and many reads find the partitions as the read before did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_

from tsdb.head.head import HeadState
from tsdb.store.partition import Judged, Partition, PartitionStatus
from tsdb.store.tolerance import Tolerance
from tsdb.store.wire import Fields
from tsdb.v1 import reader_pb2

PARTITIONS = reader_pb2.SelectHeader.DESCRIPTOR.fields_by_name["partitions"].number


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """statuses: ascending by partition. header: the SelectHeader message. complete_from_ms: from here on all of them
    are; None: the whole log is held. holes: whether any has one."""

    statuses: list[PartitionStatus]
    header: bytes
    complete_from_ms: int | None
    holes: bool

    @classmethod
    def of(cls, statuses: list[PartitionStatus]) -> Told:
        """Of these."""
        header = Fields()
        for status in statuses:
            header.add_bytes(PARTITIONS, status.encoded)
        starts = [status.state.coverage_start_ms for status in statuses if not status.state.from_start]
        holes = any(status.state.holes for status in statuses)
        return cls(statuses, header.joined(), max(starts, default=None), holes)

    def check_coverage(self, start_ms: int) -> None:
        """As PartitionStatus.check_coverage, of each."""
        if self.complete_from_ms is not None and start_ms < self.complete_from_ms:
            for status in self.statuses:
                status.check_coverage(start_ms)

    def check_holes(self, tolerance: Tolerance, start_ms: int, end_ms: int) -> None:
        """As Tolerance.check_holes, of each."""
        if self.holes:
            for status in self.statuses:
                tolerance.check_holes(status, start_ms, end_ms)


class LastTold:
    """Remembers what was told last. Thread-safe."""

    def __init__(self) -> None:
        self._last: tuple[list[Judged], list[HeadState], Told] | None = None

    def of(self, partitions: Sequence[Partition], judged: list[Judged], states: list[HeadState]) -> Told:
        """What to tell of these partitions, so judged and in these states."""
        last = self._last  # Looked at once, for any thread may replace it.
        if last is not None and _same(last[0], judged) and _same(last[1], states):
            return last[2]
        told = Told.of([p.status_of(one, state) for p, one, state in zip(partitions, judged, states, strict=True)])
        self._last = judged, states, told
        return told


def _same(before: Sequence[object], now: Sequence[object]) -> bool:
    """Whether these are the very same objects, of which none is changed any more."""
    return len(before) == len(now) and all(map(is_, before, now))
