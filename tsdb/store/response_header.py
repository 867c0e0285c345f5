"""Response header cache: encodes partition states once and reuses them until one changes.

Between two steps of the replay nothing changes, and most reads find the same partition states as the read before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import is_

from tsdb.head.head import HeadState
from tsdb.reader.wire import Fields
from tsdb.store.partition import Partition, ReadinessSnapshot, StorePartitionStatus
from tsdb.store.tolerance import Tolerance
from tsdb.v1 import reader_pb2

_FIELDS = reader_pb2.SelectHeader.DESCRIPTOR.fields_by_name
PARTITIONS, WARNINGS = _FIELDS["partitions"].number, _FIELDS["warnings"].number


@dataclass(frozen=True, slots=True, eq=False)
class ResponseHeader:
    """statuses: ascending by partition. encoded: the SelectHeader message. complete_from_ms: all partitions are
    complete from this time on; None: all have their whole log. holes: whether any partition has a hole."""

    statuses: list[StorePartitionStatus]
    encoded: bytes
    complete_from_ms: int | None
    holes: bool

    @classmethod
    def of(cls, statuses: list[StorePartitionStatus]) -> ResponseHeader:
        """statuses: ascending by partition."""
        message = Fields()
        for status in statuses:
            message.add_bytes(PARTITIONS, status.encoded)
        starts = [status.state.coverage_start_ms for status in statuses if not status.state.from_start]
        holes = any(status.state.holes for status in statuses)
        return cls(statuses, message.joined(), max(starts, default=None), holes)

    def encoded_for(self, end_ms: int) -> bytes:
        """The SelectHeader message of an answer up to end_ms, with its warnings."""
        texts = warnings(self.statuses, end_ms)
        if not texts:
            return self.encoded
        message = Fields()
        for text in texts:
            message.add_bytes(WARNINGS, text.encode())
        return self.encoded + message.joined()

    def check_coverage(self, start_ms: int) -> None:
        """Run StorePartitionStatus.check_coverage for each partition."""
        if self.complete_from_ms is not None and start_ms < self.complete_from_ms:
            for status in self.statuses:
                status.check_coverage(start_ms)

    def check_holes(self, tolerance: Tolerance, start_ms: int, end_ms: int) -> None:
        """Run Tolerance.check_holes for each partition."""
        if self.holes:
            for status in self.statuses:
                tolerance.check_holes(status, start_ms, end_ms)


def warnings(snapshots: Iterable[ReadinessSnapshot], end_ms: int | None) -> list[str]:
    """Sentences on samples that an answer up to end_ms may lack because partitions are behind the log."""
    return list(filter(None, (one.warning(end_ms) for one in snapshots)))


class ResponseHeaderCache:
    """Cache of the last answer's header. Thread-safe."""

    def __init__(self) -> None:
        self._last: tuple[list[ReadinessSnapshot], list[HeadState], ResponseHeader] | None = None

    def of(
        self, partitions: Sequence[Partition], snapshots: list[ReadinessSnapshot], states: list[HeadState]
    ) -> ResponseHeader:
        """The header of these partitions: the last one, if all readiness snapshots and states are the same objects."""
        last = self._last  # Read once: any thread may replace it.
        if last is not None and _same(last[0], snapshots) and _same(last[1], states):
            return last[2]
        header = ResponseHeader.of(
            [p.status_of(one, state) for p, one, state in zip(partitions, snapshots, states, strict=True)]
        )
        self._last = snapshots, states, header
        return header


def _same(before: Sequence[object], now: Sequence[object]) -> bool:
    """Whether both have the same objects. Equality by identity is enough: the objects are immutable."""
    return len(before) == len(now) and all(map(is_, before, now))
