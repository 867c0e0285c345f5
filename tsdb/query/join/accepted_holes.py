"""Accepted holes: stores find the same holes in the log at every replay, also those that were accepted in history.

A store does not know which holes are accepted, so it refuses. The querier then repeats the request with allow_holes and
checks the holes of the answer itself, against those accepted in history.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tsdb.codec.chunk.marker import HoleRecord
from tsdb.model.errors import HoleInRange, TsdbError
from tsdb.query.history.reads import HistoryReads
from tsdb.query.stores.routing import Share
from tsdb.v1 import common_pb2

States = Iterable[common_pb2.PartitionState]


class AcceptedHoles:
    """Hole checks of one request over [start_ms, end_ms). history: None when there is no history; then no hole is
    accepted."""

    def __init__(self, history: HistoryReads | None, start_ms: int, end_ms: int, *, allow_holes: bool) -> None:
        self._history = None if allow_holes else history
        self._range = start_ms, end_ms
        self._checked_here: set[int] = set()

    def handle_refusal(self, share: Share, error: TsdbError) -> bool:
        """Whether to repeat the request to the same store with allow_holes, and check the holes of its answer here."""
        if (
            self._history is None
            or not isinstance(error, HoleInRange)
            or not self._checked_here.isdisjoint(share.partitions)
        ):
            return False
        self._checked_here.update(share.partitions)
        return True

    def apply(self, request: Any, share: Share) -> Any:
        """Set allow_holes in a share's request where its holes are checked here."""
        if not self._checked_here.isdisjoint(share.partitions):
            request.options.allow_holes = True
        return request

    def check(self, states: States) -> None:
        """Raises HoleInRange for a hole that is not accepted, in an answer that was requested with allow_holes here."""
        checked = [state for state in states if state.partition in self._checked_here]
        if checked and self._history is not None:
            check_memory_holes(self._history, checked, *self._range)


def check_memory_holes(history: HistoryReads, states: States, start_ms: int, end_ms: int) -> None:
    """Raises HoleInRange naming the first hole of memory in [start_ms, end_ms) that is not accepted."""
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
    """Identity of a hole. Stores and the chunk stage name the same loss with the same fields."""
    return hole.partition, hole.pack_id, hole.start_ms, hole.end_ms, hole.reason, hole.record_offset
