"""Engines: the two programs that run the chunk stage, and the time by which each must have emitted a window. Pure.

The Python chunker and the Spark pipeline are members of one group and write the same records. The chunker paces a
window over `spread`; Spark emits it at once.
"""

from __future__ import annotations

from typing import Literal, get_args

from tsdb.model.time_set import TimeSet
from tsdb.model.window import floor_to

Engine = Literal["python", "spark"]

GROUP_ID = "chunks"
"""Group whose commits hold the progress of the chunk stage."""
ENGINES: tuple[Engine, ...] = get_args(Engine)


def engine_of(client_id: str) -> Engine | None:
    """The engine of a group member: the last word of its client id. None for another client."""
    word = client_id.rpartition("-")[2]
    return next((engine for engine in ENGINES if engine == word), None)


def windows_overdue(emitted_through_ms: int, now_ms: int, times: TimeSet, engine: Engine | None) -> int:
    """Number of windows that the engine should have emitted by now and has not. Ticks close the windows of an idle log,
    so the clock decides. An unknown engine gets the time of the slower one."""
    pace_ms = 0 if engine == "spark" else times.spread_ms
    due_through_ms = floor_to(now_ms - times.grace_ms - pace_ms, times.window_ms)
    return max(0, due_through_ms - emitted_through_ms) // times.window_ms
