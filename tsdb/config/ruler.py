"""Settings of the ruler, which evaluates rule files."""

from __future__ import annotations

from pydantic import BaseModel, Field

from tsdb.config.types import Names


class RulerFields(BaseModel):
    """Rule files, and when they are evaluated."""

    rules: Names = Field(
        (), description="Rule files of Prometheus, separated by commas; read again when they change. Empty: no ruler."
    )
    rules_grace_s: float = Field(
        15.0,
        ge=0,
        le=86_400,
        description="A time is evaluated when all partitions have passed it by this much, by the log's clock. Samples "
        "that come later than this after their time are missing in results that were evaluated before.",
    )
    rules_interval_s: float = Field(
        60.0,
        ge=0.1,
        le=86_400,
        description="Interval of rule groups without one; as Prometheus's evaluation_interval.",
    )
    rules_query_offset_s: float = Field(
        0.0,
        ge=0,
        le=86_400,
        description="How much earlier the rules of a group read, and their results are, than the time of the "
        "evaluation; as Prometheus's rule_query_offset.",
    )
    rules_series_max: int = Field(
        100_000,
        ge=1,
        le=10_000_000,
        description="Series that the expression of a rule may give, some 1 KiB each while it is evaluated; with more "
        "the rule fails.",
    )
    rules_external_url: str = Field(
        "", max_length=2000, description="Address that links in templates of alerts begin with; as --web.external-url."
    )
