"""Accepted: holes that stores find in the log again at every replay, although somebody accepted them in history.

A store knows of no acceptance and refuses. Then it is asked to answer all the same, and what it says of its holes is
judged here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tsdb.codec.chunk_marker import HoleRecord
from tsdb.model.errors import HoleInRange, TsdbError
from tsdb.query.history_reads import HistoryReads
from tsdb.query.routing import Share
from tsdb.v1 import common_pb2

States = Iterable[common_pb2.PartitionState]


class Accepted:
    """Of one request over [start_ms, end_ms). history: None without one, where nothing can be accepted."""

    def __init__(self, history: HistoryReads | None, start_ms: int, end_ms: int, *, allow_holes: bool) -> None:
        self._history = None if allow_holes else history
        self._range = start_ms, end_ms
        self._judged: set[int] = set()

    def handled(self, share: Share, error: TsdbError) -> bool:
        """Whether the store is worth asking again, for an answer whose holes are judged afterwards."""
        if self._history is None or not isinstance(error, HoleInRange) or not self._judged.isdisjoint(share.partitions):
            return False
        self._judged.update(share.partitions)
        return True

    def apply(self, request: Any, share: Share) -> Any:
        """The request for a share, lenient where its holes are judged here."""
        if not self._judged.isdisjoint(share.partitions):
            request.options.allow_holes = True
        return request

    def check(self, states: States) -> None:
        """Raises HoleInRange for a hole that a store was told to overlook and nobody accepted."""
        judged = [state for state in states if state.partition in self._judged]
        if judged and self._history is not None:
            check_memory_holes(self._history, judged, *self._range)


def check_memory_holes(history: HistoryReads, states: States, start_ms: int, end_ms: int) -> None:
    """Raises HoleInRange naming the first hole of memory in [start_ms, end_ms) that nobody accepted."""
    touching = [hole for state in states for hole in state.holes if hole.start_ms < end_ms and hole.end_ms > start_ms]
    if not touching:
        return
    known = history.holes({hole.partition for hole in touching}, start_ms, end_ms)
    accepted = {_key(one.hole) for one in known if one.accepted}
    for hole in touching:
        if _key(hole) not in accepted:
            raise HoleInRange(
                f"samples of partition {hole.partition} in [{hole.start_ms}, {hole.end_ms}) may be lost:"
                f" {hole.reason}, record_offset {hole.record_offset}; allow_holes answers without them",
                partition=hole.partition,
                hole_reason=hole.reason,
                hole_start_ms=hole.start_ms,
                hole_end_ms=hole.end_ms,
            )


def _key(hole: HoleRecord | common_pb2.Hole) -> tuple[int, int, int, int, str, int]:
    """Stores and the chunk stage name a loss in the log by the same rules."""
    return hole.partition, hole.pack_id, hole.start_ms, hole.end_ms, hole.reason, hole.record_offset
