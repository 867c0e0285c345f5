"""Evidence: lists the facts behind an answer: memory and history, coverage, lag, holes, samples read, time taken,
freshness."""

from __future__ import annotations

from typing import Any

from tsdb.api.prometheus.pages.query import Evaluated
from tsdb.model.lag import known_lag
from tsdb.ui.pages.page import PageCall
from tsdb.v1 import common_pb2

HOLES_MAX = 100


def evidence(asked: PageCall, evaluated: Evaluated, start_ms: int, end_ms: int) -> dict[str, Any]:
    """The evidence as JSON. start_ms, end_ms: the drawn range, both ends included. Times are ms since the epoch, UTC;
    null where unknown.

    seams: times inside the range at which the memory of a partition begins; before them the answer comes from history.

    """
    states = sorted(asked.sources.states(), key=lambda state: state.partition)
    holes = [hole for state in states for hole in _holes(state, start_ms, end_ms)]
    return {
        "now_ms": asked.call.sources.clock.now_ms(),
        "samples": evaluated.read.samples,
        "series": evaluated.read.series,
        "reads": evaluated.read.selects,
        "queue_s": evaluated.timing.queue,
        "read_s": evaluated.read.seconds,
        "evaluation_s": evaluated.timing.evaluation,
        "newest_ms": evaluated.read.newest_ms,
        "has_history": asked.sources.has_history,
        "partitions": [_partition(state) for state in states],
        "partitions_missing": asked.sources.partitions - len(states),
        "seams": sorted(
            {
                state.coverage_start_ms
                for state in states
                if not state.from_start and start_ms < state.coverage_start_ms <= end_ms
            }
        ),
        "from_memory": sum(state.from_start or state.coverage_start_ms <= start_ms for state in states),
        "holes": holes[:HOLES_MAX],
        "holes_total": len(holes),
    }


def _partition(state: common_pb2.PartitionState) -> dict[str, Any]:
    return {
        "partition": state.partition,
        "coverage_start_ms": None if state.from_start else state.coverage_start_ms,
        "lag_records": known_lag(state.lag_records),
        "lag_ms": known_lag(state.lag_ms),
        "is_ready": state.ready,
        "reason": state.reason,
        "watermark_ms": state.watermark_ms if state.HasField("watermark_ms") else None,
    }


def _holes(state: common_pb2.PartitionState, start_ms: int, end_ms: int) -> list[dict[str, Any]]:
    return [
        {
            "partition": state.partition,
            "start_ms": max(hole.start_ms, start_ms),
            "end_ms": min(hole.end_ms, end_ms),
            "reason": hole.reason,
        }
        for hole in state.holes
        if hole.start_ms <= end_ms and hole.end_ms > start_ms
    ]
