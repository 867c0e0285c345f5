"""Losses: makes the sentences that name the samples that an answer may lack, where the query accepts that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tsdb.model.times import time_text
from tsdb.v1 import common_pb2

LOSSES_MAX = 100  # Named in one answer; each corrupt chunk of history is a loss.


def losses(
    lags: Iterable[str],
    states: Iterable[common_pb2.PartitionState],
    start_ms: int,
    end_ms: int,
    *,
    allow_holes: bool,
) -> tuple[str, ...]:
    """The sentences of stores about their lag and, with allow_holes, one for each hole in [start_ms, end_ms).

    states: of all partitions in the answer. A hole that both stores and history state is named once.
    """
    ordered = sorted(states, key=lambda state: state.partition)
    found = [*lags, *dict.fromkeys(_found(ordered, start_ms, end_ms, allow_holes))]
    if len(found) > LOSSES_MAX:
        found[LOSSES_MAX:] = [f"{len(found) - LOSSES_MAX} more losses are not listed"]
    return tuple(found)


def _found(states: Iterable[common_pb2.PartitionState], start_ms: int, end_ms: int, allow_holes: bool) -> Iterator[str]:
    for state in states:
        # Without allow_holes all holes here are accepted in history, and a read does not mention those.
        for hole in state.holes if allow_holes else ():
            if hole.start_ms < end_ms and hole.end_ms > start_ms:
                yield _hole(hole)


def _hole(hole: common_pb2.Hole) -> str:
    partition = f"partition {hole.partition}"
    lost_from = f"pack {hole.pack_id:016x} of {partition}" if hole.pack_id else partition
    return (
        f"samples of {lost_from} from {time_text(hole.start_ms)} until {time_text(hole.end_ms)} may be lost:"
        f" {hole.reason}, record_offset {hole.record_offset}"
    )
