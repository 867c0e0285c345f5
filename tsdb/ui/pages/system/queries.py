"""Queries: those that run, with a button that ends each, and the newest slow ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tsdb.query.promql.running import RunningQuery
from tsdb.query.promql.slow import KEPT, SlowQuery
from tsdb.ui.pages.page import PageCall
from tsdb.ui.pages.system.grid import Cell, Column, Grid, duration, number, time, visible

_RUNNING_COLUMNS = (
    Column("query"),
    Column("kind", "The endpoint of the HTTP API, or a call of gRPC."),
    Column("since", is_time=True),
    Column("age", is_number=True),
    Column("caller"),
    Column("end it"),
)
_SLOW_COLUMNS = (
    Column("query"),
    Column("kind"),
    Column("ended", is_time=True),
    Column("took", is_number=True),
    Column("waited", "For a free thread.", is_number=True),
    Column("reads", "Time of the reads, a part of the whole.", is_number=True),
    Column("series", is_number=True),
    Column("samples", is_number=True),
)


def values(asked: PageCall) -> Mapping[str, Any]:
    """The variables of the template. The request for the page itself is not listed."""
    running = asked.call.sources.running
    own = asked.call.running.number
    others = [_running_row(query) for query in running.all() if query.number != own and query.text]
    slow = [_slow_row(query) for query in running.slow.all()]
    slow_s = f"{asked.call.options.slow_s:g} s"
    return {
        "grids": [
            Grid("Running", _RUNNING_COLUMNS, others, "No query runs now."),
            Grid(
                f"Slow: of the HTTP API, {slow_s} or longer, the newest {KEPT}",
                _SLOW_COLUMNS,
                slow,
                f"No query of the HTTP API has taken {slow_s} (setting query_slow_s) since this process began.",
            ),
        ]
    }


def _running_row(query: RunningQuery) -> Sequence[Cell]:
    return (
        Cell(visible(query.text), is_name=True),
        Cell(query.kind),
        Cell(time(round(query.started_at) * 1000)),
        Cell(duration(query.age_s * 1000)),
        Cell(visible(query.address)),
        Cell("End", cancels=query.number),
    )


def _slow_row(query: SlowQuery) -> Sequence[Cell]:
    return (
        Cell(visible(query.text), is_name=True),
        Cell(query.kind),
        Cell(time(query.ended_ms // 1000 * 1000)),
        Cell(duration(query.seconds * 1000)),
        Cell(duration(query.queue_s * 1000)),
        Cell(duration(query.read_s * 1000)),
        Cell(number(query.series)),
        Cell(number(query.samples)),
    )
