"""Pipeline: the chunk stage with its engine and windows, and what the loader has brought into history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tsdb.model.lag import known_lag
from tsdb.ui.pages.page import PageCall
from tsdb.ui.pages.system.grid import Cell, Column, Grid, duration, number, time, visible
from tsdb.v1 import common_pb2, reader_pb2

_STAGE_COLUMNS = (
    Column("engine", "The program that turns the log into chunks, by the members of its group."),
    Column("members", "Processes in the group.", is_number=True),
    Column("lag", "Records after the positions that it committed.", is_number=True),
    Column("windows overdue", "Windows that should be emitted by now and are not.", is_number=True),
    Column("emitted through", "Windows that end by this time are emitted, in every partition.", is_time=True),
    Column("last commit seen", is_time=True),
    Column("as of", is_time=True),
)
_LOADED_COLUMNS = (
    Column("partition", is_number=True),
    Column("history to", "History has the samples of all windows that end by this time.", is_time=True),
    Column("left", "Time that memory may still drop before reads of older ranges are refused.", is_number=True),
    Column("loaded below offset", "The loader has stored what came before this offset.", is_number=True),
    Column("memory from offset", is_number=True),
    Column("together", "Whether history and memory together answer any range."),
)
_PARTITIONS_NAMED = 8


def values(asked: PageCall) -> Mapping[str, Any]:
    """The variables of the template."""
    if not asked.sources.has_history:
        return {"has_history": False, "words": [], "grids": []}
    found = asked.sources.coverage(asked.call.running)
    return {"has_history": True, "words": words(found), "grids": grids(found)}


def words(found: reader_pb2.CoverageResponse) -> Sequence[Cell]:
    """The way of samples into history as sentences: what stands where, since when, and whether it is well."""
    return (_memory_words(found), _stage_words(found), _history_words(found))


def _memory_words(found: reader_pb2.CoverageResponse) -> Cell:
    states = found.partitions
    if not states:
        return Cell("Memory: no store answers. Start one, or look at the page of the partitions.", is_bad=True)
    starts = [state.coverage_start_ms for state in states if not state.from_start]
    since = "all samples of the log" if not starts else f"the samples since {time(max(starts))} UTC"
    return Cell(f"Memory has {since}, in {_partitions(len(states))}.")


def _stage_words(found: reader_pb2.CoverageResponse) -> Cell:
    if not found.HasField("chunk_stage"):
        return Cell("Chunk stage: not looked at yet; the querier looks every five seconds.")
    stage = found.chunk_stage
    if not stage.engines:
        return Cell("Chunk stage: nobody runs it. Start a chunker, or `tsdb spark run`.", is_bad=True)
    through = f"has emitted what ends by {time(stage.emitted_through_ms)} UTC"
    if not stage.HasField("emitted_through_ms"):
        through = "has not emitted a window of each partition yet"
    engines = ", ".join(map(visible, stage.engines))
    if stage.windows_overdue:
        overdue = "1 window is" if stage.windows_overdue == 1 else f"{number(stage.windows_overdue)} windows are"
        return Cell(f"Chunk stage ({engines}) {through}; {overdue} overdue.", is_bad=True)
    return Cell(f"Chunk stage ({engines}) {through}; nothing is overdue.")


def _history_words(found: reader_pb2.CoverageResponse) -> Cell:
    if not found.history:
        return Cell("History has nothing yet: no window has been emitted and loaded.")
    through = f"History has all samples before {time(min(one.emitted_through_ms for one in found.history))} UTC"
    gaps = [one.partition for one in found.history if not one.reaches_memory]
    if gaps:
        named = ", ".join(map(str, gaps[:_PARTITIONS_NAMED])) + ("…" if len(gaps) > _PARTITIONS_NAMED else "")
        return Cell(
            f"{through}. It does not reach memory in {_partitions(len(gaps))} ({named}): reads of the gap are refused "
            "until the loader has caught up.",
            is_bad=True,
        )
    return Cell(f"{through}; together with memory it answers any range.")


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def grids(found: reader_pb2.CoverageResponse) -> tuple[Grid, Grid]:
    """The grids of the chunk stage and of history."""
    return _stage(found), _loaded(found)


def _stage(found: reader_pb2.CoverageResponse) -> Grid:
    rows = [_stage_row(found.chunk_stage)] if found.HasField("chunk_stage") else []
    return Grid("Chunk stage", _STAGE_COLUMNS, rows, "The querier has not looked yet; it looks every five seconds.")


def _stage_row(stage: reader_pb2.ChunkStageState) -> Sequence[Cell]:
    engines = ", ".join(map(visible, stage.engines))
    return (
        Cell(engines or "nobody runs it: start a chunker, or `tsdb spark run`", is_bad=not engines),
        Cell(number(stage.members)),
        Cell("unknown" if known_lag(stage.lag_records) is None else number(stage.lag_records)),
        Cell(number(stage.windows_overdue), is_bad=stage.windows_overdue > 0),
        Cell(time(stage.emitted_through_ms if stage.HasField("emitted_through_ms") else None)),
        Cell(time(stage.last_commit_ms if stage.HasField("last_commit_ms") else None)),
        Cell(time(stage.as_of_ms)),
    )


def _loaded(found: reader_pb2.CoverageResponse) -> Grid:
    memory = {state.partition: state for state in found.partitions}
    rows = [_loaded_row(loaded, memory.get(loaded.partition)) for loaded in found.history]
    return Grid(
        "Loader and history", _LOADED_COLUMNS, rows, "History has nothing yet: no window has been emitted and loaded."
    )


def _loaded_row(loaded: reader_pb2.HistoryState, memory: common_pb2.PartitionState | None) -> Sequence[Cell]:
    # A head with the whole log needs no history.
    left_ms = None if memory is None or memory.from_start else loaded.emitted_through_ms - memory.coverage_start_ms
    return (
        Cell(str(loaded.partition)),
        Cell(time(loaded.emitted_through_ms)),
        Cell("–" if left_ms is None else duration(left_ms), is_bad=left_ms is not None and left_ms < 0),
        Cell(number(loaded.position)),
        Cell("–" if memory is None else number(memory.since_offset)),
        Cell("any range")
        if loaded.reaches_memory
        else Cell("a gap: reads that need it are refused until the loader has caught up", is_bad=True),
    )
