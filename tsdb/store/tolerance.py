"""Tolerance: the staleness and the holes that a reader accepts."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.store.partition import ReadinessSnapshot, StorePartitionStatus
from tsdb.v1 import reader_pb2


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerance of a read. By default a read accepts neither staleness nor holes. max_lag_ms: refuse a larger lag;
    None: the store's bound applies."""

    allow_stale: bool = False
    allow_holes: bool = False
    max_lag_ms: int | None = None

    def check_fresh(self, snapshot: ReadinessSnapshot, end_ms: int | None) -> None:
        """Raises Unavailable when the partition is further behind than an answer up to end_ms accepts. None: the answer
        is all that the partition has."""
        if not self.allow_stale and (snapshot.readiness.reason or self.max_lag_ms is not None):
            snapshot.check_fresh(self.max_lag_ms, end_ms)

    def check_holes(self, status: StorePartitionStatus, start_ms: int, end_ms: int) -> None:
        """Raises HoleInRange when a hole touches [start_ms, end_ms), unless holes are accepted."""
        if not self.allow_holes:
            status.check_holes(start_ms, end_ms)


def tolerance_of(options: reader_pb2.ReadOptions, max_lag_ms: int | None = None) -> Tolerance:
    """The tolerance that the request states. max_lag_ms: bound of the server, for a request that names none."""
    max_lag_ms = options.max_lag_ms if options.HasField("max_lag_ms") else max_lag_ms
    return Tolerance(options.allow_stale, options.allow_holes, max_lag_ms)
