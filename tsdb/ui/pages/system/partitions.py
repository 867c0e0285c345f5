"""Partitions: shows readiness and the reason, replay, lag, content and memory, and the holes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tsdb.model.lag import known_lag
from tsdb.query.reporter import NO_STORE
from tsdb.ui.pages.page import PageCall
from tsdb.ui.pages.system.grid import Cell, Column, Grid, duration, number, size, time, visible
from tsdb.v1 import common_pb2

HOLES_MAX = 200
UNKNOWN = "unknown"
# The next step, by reason. A store's reasons for a final stop have a message in its log and at /-/ready.
NEXT = {
    NO_STORE: "No store answers for it: start the store that has it, or check the setting `stores`.",
    "replaying": "The store reads the log since its start; reads are answered when it has caught up.",
    "lagging": "The store is further behind the log than its bound: check its CPU and the rate of writes.",
    "high_watermark_unknown": "The store has not reached the log yet: check that Kafka answers.",
    "high_watermark_old": "The store cannot reach the log: check that Kafka answers.",
}
OTHER_NEXT = "The log of the store and its /-/ready say why it stopped."

_COLUMNS = (
    Column("partition", is_number=True),
    Column("ready", "Whether reads of the partition are answered, and why not."),
    Column("replay", "Records applied since the start of what the store holds."),
    Column("lag", "Records in the log that reads do not see yet, and the time since they came.", is_number=True),
    Column("complete from", "Samples from this time on are in memory; those before are in history.", is_time=True),
    Column("newest record", "Time of the broker at the last record that reads see.", is_time=True),
    Column("series", is_number=True),
    Column("samples", is_number=True),
    Column("memory", "Of samples and the label index.", is_number=True),
    Column("per sample", is_number=True),
    Column("holes", "Named losses. A read that touches one is refused, or names it.", is_number=True),
)


def values(asked: PageCall) -> Mapping[str, Any]:
    """The variables of the template."""
    states = {state.partition: state for state in asked.sources.coverage(asked.call.running).partitions}
    partitions = range(asked.sources.partitions)
    ready = sum(states[one].ready for one in partitions if one in states)
    return {
        "is_ready": ready == len(partitions),
        "summary": f"{ready} of {len(partitions)} partitions are ready",
        "grids": [
            Grid("Partitions", _COLUMNS, [_row(one, states.get(one)) for one in partitions], "The log has none."),
            _holes([hole for state in states.values() for hole in state.holes]),
        ],
    }


def _row(partition: int, state: common_pb2.PartitionState | None) -> Sequence[Cell]:
    if state is None:
        return (Cell(str(partition)), _readiness(NO_STORE), *(Cell("–") for _ in _COLUMNS[2:]))
    applied = state.next_offset - state.since_offset
    of = state.high_watermark - state.since_offset
    return (
        Cell(str(partition), f"topic id {state.topic_id}"),
        Cell("ready") if state.ready else _readiness(state.reason),
        _progress(state, applied / of if of > 0 else 1.0),
        Cell(_lag(state), is_bad=not state.ready),
        Cell("the beginning" if state.from_start else time(state.coverage_start_ms)),
        Cell(time(state.watermark_ms if state.HasField("watermark_ms") else None)),
        Cell(number(state.series)),
        Cell(number(state.samples)),
        Cell(size(state.bytes)),
        Cell(size(state.bytes / state.samples) if state.samples else "–"),
        Cell(number(len(state.holes)), is_bad=len(state.holes) > 0),
    )


def _readiness(reason: str) -> Cell:
    return Cell(f"not ready: {visible(reason)}. {NEXT.get(reason, OTHER_NEXT)}", is_bad=True)


def _progress(state: common_pb2.PartitionState, share: float) -> Cell:
    # The high watermark may be older than the last record that was applied.
    text = f"{number(state.next_offset)} of {number(max(state.next_offset, state.high_watermark))}"
    return Cell(text, f"memory holds all records from offset {state.since_offset} on", share=min(1.0, max(0.0, share)))


def _lag(state: common_pb2.PartitionState) -> str:
    records, lag_ms = known_lag(state.lag_records), known_lag(state.lag_ms)
    if records == 0 and lag_ms == 0:
        return "none"
    if records is None and lag_ms is None:
        return UNKNOWN
    return f"{UNKNOWN if records is None else number(records)}, {UNKNOWN if lag_ms is None else duration(lag_ms)}"


def _holes(holes: Sequence[common_pb2.Hole]) -> Grid:
    columns = (
        Column("partition", is_number=True),
        Column("from", is_time=True),
        Column("to", is_time=True),
        Column("reason"),
        Column("offset", "Of the record where the loss was found.", is_number=True),
    )
    rows = [
        (
            Cell(str(hole.partition)),
            Cell(time(hole.start_ms)),
            Cell(time(hole.end_ms)),
            Cell(visible(hole.reason)),
            Cell(number(hole.record_offset)),
        )
        for hole in holes[:HOLES_MAX]
    ]
    more = f"; the first {HOLES_MAX} are shown" if len(holes) > HOLES_MAX else ""
    return Grid(f"Holes{more}", columns, rows, "There are no holes: nothing that was accepted is lost.")
