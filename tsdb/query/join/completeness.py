"""Completeness: checks for each partition whether memory and history together have all of a range. Pure.

Memory has the log from since_offset on. History has every sample below offset X (the loaded position) whose time is
before emitted_through. So they meet when X >= since_offset, and history is complete before the seam when
emitted_through reaches the seam.
"""

from __future__ import annotations

from collections.abc import Mapping

from tsdb.history.interface import Loaded
from tsdb.model.errors import Unavailable
from tsdb.v1 import common_pb2

RETRY_AFTER_S = 1.0


def reaches(state: common_pb2.PartitionState, start_ms: int) -> bool:
    """Whether memory alone holds everything from start_ms on."""
    return state.from_start or state.coverage_start_ms <= start_ms


def seam_ms(state: common_pb2.PartitionState, end_ms: int) -> int:
    """The seam: history answers before this time, memory from it on."""
    return min(state.coverage_start_ms, end_ms)


def check_complete(state: common_pb2.PartitionState, loaded: Mapping[int, Loaded], seam: int) -> None:
    """Raises Unavailable (history_behind), which names the partition and the four numbers, unless history is complete
    before `seam`.

    loaded: read before any chunk. seam: see seam_ms.

    """
    _check(state, loaded.get(state.partition), seam)


def check_series_complete(state: common_pb2.PartitionState, loaded: Mapping[int, Loaded]) -> None:
    """Does what check_complete does, for the series index alone. Series announced below a position are in history
    before that position is loaded, so emitted_through does not matter."""
    _check(state, loaded.get(state.partition), None)


def _check(state: common_pb2.PartitionState, loaded: Loaded | None, needed_ms: int | None) -> None:
    if loaded is not None and loaded.topic_id != state.topic_id:
        loaded = None  # The value is from another incarnation of the log, so its offsets have no meaning here.
    joined = loaded is not None and loaded.position >= state.since_offset
    if loaded is not None and joined and (needed_ms is None or loaded.emitted_through_ms >= needed_ms):
        return
    position = "none" if loaded is None else loaded.position
    emitted_ms = "none" if loaded is None else loaded.emitted_through_ms
    raise Unavailable(
        f"history of partition {state.partition} does not reach memory yet: loaded up to offset {position}, memory"
        f" begins at offset {state.since_offset}; windows emitted through {emitted_ms} ms, needed through"
        f" {needed_ms} ms",
        reason="history_behind",
        retry_after_s=RETRY_AFTER_S,
        partition=state.partition,
        loaded_position=position,
        since_offset=state.since_offset,
        emitted_through_ms=emitted_ms,
        needed_through_ms=needed_ms,
    )
