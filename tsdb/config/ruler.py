"""Settings of the ruler, which evaluates rule files."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field, field_validator, model_validator

from tsdb.config.common import HistoryFields, WorkerSettings, check_group_drain
from tsdb.config.gateway import GatewayFields
from tsdb.config.promql import PromqlFields, UiFields
from tsdb.config.querier import QuerierFields
from tsdb.config.select import SelectFields
from tsdb.config.types import Names
from tsdb.model.secrets import url_names_a_user
from tsdb.selector.tokens import PLAIN_LABEL


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
        "that come later than this after their time are repaired: what they can change is evaluated again.",
    )
    rules_repair_s: float = Field(
        7_200.0,
        ge=0,
        le=604_800,
        description="How far back times are evaluated again for samples that come late; older ones are counted in "
        "tsdb_ruler_unrepaired_steps_total. At most what stores keep in memory, or history has.",
    )
    rules_wait_max_s: float | None = Field(
        None,
        ge=0,
        le=86_400,
        description="A time that is not complete this many seconds after it was due is evaluated without what is "
        "missing, counted in tsdb_ruler_short_evaluations_total, and repaired when the rest comes. Unset: never.",
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
    rules_alertmanagers: Names = Field(
        (),
        description="Addresses of Alertmanagers, separated by commas, that get the alerts of rules, each all of them; "
        "a path in an address stands before /api/v2/alerts.",
    )
    rules_alertmanager_token_file: Path | None = Field(
        None, description="File with a bearer token for the Alertmanagers, read for each request."
    )
    rules_alertmanager_tls_ca_file: Path | None = Field(
        None, description="PEM CA of Alertmanagers with https; without it those of the system."
    )
    rules_external_url: str = Field(
        "", max_length=2000, description="Address that links in templates of alerts begin with; as --web.external-url."
    )

    rules_external_labels: Names = Field(
        (),
        description="Labels NAME=VALUE, separated by commas, that each sent alert gets unless it has them, and that "
        "templates know; as Prometheus's external_labels. Recorded series do not get them.",
    )

    @field_validator("rules_external_labels")
    @classmethod
    def _check_labels(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        names = [label.partition("=")[0] for label in labels]
        for label, name in zip(labels, names, strict=True):
            if "=" not in label or PLAIN_LABEL.fullmatch(name) is None:
                raise ValueError(f"{label!r} is not NAME=VALUE with the name of a label")
        if len(set(names)) < len(names):
            raise ValueError("a name is given twice")
        return labels

    @property
    def external_labels(self) -> dict[str, str]:
        """The labels by name."""
        pairs = (label.partition("=") for label in self.rules_external_labels)
        return {name: value for name, _, value in pairs}

    @field_validator("rules_alertmanagers")
    @classmethod
    def _check_alertmanagers(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url!r} does not begin with http:// or https://")
            if url_names_a_user(url):
                raise ValueError("an address names a user: give rules_alertmanager_token_file instead")
        return urls


class RulerSettings(
    RulerFields, GatewayFields, QuerierFields, UiFields, PromqlFields, SelectFields, HistoryFields, WorkerSettings
):
    """All settings of the role `ruler`: it reads as a querier does, and writes as a gateway."""

    @model_validator(mode="after")
    def _check_rules(self) -> RulerSettings:
        if not self.rules:
            raise ValueError("rules is required: --rules FILE[,FILE], TSDB_RULES or the file of settings")
        check_group_drain(self)
        return self
