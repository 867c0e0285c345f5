"""Settings for PromQL, its HTTP API and the pages over it, which queriers have."""

from __future__ import annotations

import re

from pydantic import BaseModel, Field, field_validator

from tsdb.config.types import Names
from tsdb.model import defaults

FEATURES = (
    "promql-experimental-functions",
    "promql-duration-expr",  # Has no effect, as in Prometheus 3.15, because such expressions are always parsed.
    "promql-extended-range-selectors",
    "promql-binop-fill-modifiers",
    "promql-delayed-name-removal",
    "use-start-timestamps",
)


class PromqlFields(BaseModel):
    """Bounds of PromQL queries, and parts of the language."""

    query_timeout_s: float = Field(
        defaults.QUERY_TIMEOUT_S,
        gt=0,
        le=86_400,
        description="Longest time of one PromQL query, in seconds, the queue included; as Prometheus's "
        "--query.timeout. A request may ask for less.",
    )
    query_running_max: int = Field(
        0,
        ge=0,
        le=1024,
        description="PromQL queries of the HTTP API that are evaluated at once; 0: one for each core but one, "
        "which is left to writes and reads. Each uses several cores, so more share the time and hold more memory.",
    )
    query_waiting_max: int = Field(
        defaults.QUERIES_WAITING_MAX,
        ge=0,
        le=100_000,
        description="PromQL queries that wait for one of query_running_max to end, and as many lookups of labels; more "
        "are refused.",
    )
    query_values_max: int = Field(
        defaults.QUERY_VALUES_MAX,
        ge=1000,
        le=1 << 40,
        description="Values of one vector inside a PromQL query, over all its steps; 9 bytes each. As Prometheus's "
        "--query.max-samples.",
    )
    query_lookback_s: float = Field(
        300.0,
        ge=1,
        le=86_400,
        description="How old the newest sample of a series may be that a PromQL query takes for its value at a time; "
        "as Prometheus's --query.lookback-delta.",
    )
    query_slow_s: float = Field(
        defaults.QUERY_SLOW_S,
        ge=0,
        le=86_400,
        description="PromQL queries of this many seconds or more are logged, with the samples that they read; 0: all.",
    )
    enable_feature: Names = Field(
        (),
        description="Parts of PromQL that Prometheus has behind the flag of this name: " + ", ".join(FEATURES) + ".",
    )
    cors_origin: str = Field(
        "",
        max_length=1000,
        description="Regular expression of other origins whose web pages may query the HTTP API in a browser; as "
        "Prometheus's --web.cors.origin, whose default .* allows all. Empty: none.",
    )

    @field_validator("enable_feature")
    @classmethod
    def _check_features(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in FEATURES:
                raise ValueError(f"{name!r} is none of {', '.join(FEATURES)}")
        return names

    @field_validator("cors_origin")
    @classmethod
    def _check_origin(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern


class UiFields(BaseModel):
    """Bounds of the pages."""

    ui: bool = Field(True, description="Answer with pages for people at / of the HTTP server; false: with an index.")
    ui_points_max: int = Field(
        defaults.UI_POINTS_MAX,
        ge=1_000,
        le=10_000_000,
        description="Points that a browser draws in one graph; more are reduced to the lowest and highest of each "
        "stretch. Numbers beside the graph come from all values.",
    )
    ui_series_max: int = Field(
        defaults.UI_SERIES_MAX,
        ge=1,
        le=10_000,
        description="Series that a browser draws in one graph; the page states how many there are.",
    )
    ui_rows_max: int = Field(
        defaults.UI_ROWS_MAX,
        ge=10,
        le=100_000,
        description="Rows of one table of values or samples; the page states how many there are.",
    )
    ui_exemplar_link: str = Field(
        "",
        max_length=2000,
        pattern=r"^(https?://.*)?$",
        description="Address that a click on an exemplar in the explorer opens; {NAME} stands for the value of its "
        "label NAME: https://traces.example/trace/{trace_id}. An exemplar without such a label has no link. Empty: "
        "none has one.",
    )
