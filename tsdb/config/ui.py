"""Settings of the pages for people, for queriers."""

from __future__ import annotations

from pydantic import BaseModel, Field


class UiFields(BaseModel):
    """Bounds of the pages."""

    ui: bool = Field(True, description="Answer with pages for people at / of the HTTP server; false: with an index.")
    ui_points_max: int = Field(
        100_000,
        ge=1_000,
        le=10_000_000,
        description="Points that a browser draws in one graph; more are reduced to the lowest and highest of each "
        "stretch. Numbers beside the graph come from all values.",
    )
    ui_series_max: int = Field(
        500,
        ge=1,
        le=10_000,
        description="Series that a browser draws in one graph; the page states how many there are.",
    )
    ui_rows_max: int = Field(
        1_000,
        ge=10,
        le=100_000,
        description="Rows of one table of values or samples; the page states how many there are.",
    )
