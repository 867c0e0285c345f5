"""Settings: those in effect, with their defaults and what they are for. Secrets are masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tsdb.ui.pages.page import PageCall
from tsdb.ui.pages.system.grid import Cell, Column, Grid, visible

_COLUMNS = (Column("setting"), Column("value"), Column("default"), Column("meaning"))


def values(asked: PageCall) -> Mapping[str, Any]:
    """The variables of the template: first the settings that differ from their default."""
    every = asked.sources.settings()
    changed = [one for one in every if one.value != one.default]
    kept = [one for one in every if one.value == one.default]
    return {
        "grids": [
            Grid(
                caption,
                _COLUMNS,
                [
                    (
                        Cell(one.name, is_name=True),
                        Cell(visible(one.value), is_name=True),
                        Cell("required" if one.default is None else visible(one.default), is_name=True),
                        Cell(one.help),
                    )
                    for one in rows
                ],
                "There are none.",
            )
            for caption, rows in (("Set here", changed), ("Defaults", kept))
        ]
    }
