"""Settings of trials that run beside production: experiments (another version, other settings) and shadow reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, SecretStr, model_validator

from tsdb.config.types import AnyAddresses, host_port

# A label of DNS has at most 63 characters. Kubernetes adds the name of a set, a pod's number and a revision's hash.
NAME_CHARS_MAX = 40


def _name(text: str) -> str:
    if text and not (len(text) <= NAME_CHARS_MAX and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", text)):
        raise ValueError(
            f"{text!r} is not a DNS label of at most {NAME_CHARS_MAX} characters: a-z, 0-9 and inner hyphens, such as"
            " smaller-slices"
        )
    return text


class ExperimentFields(BaseModel):
    """The name of an experiment, and the addresses that it must not have."""

    experiment: Annotated[str, AfterValidator(_name)] = Field(
        "",
        description="Name of an experiment, a DNS label: this process runs beside production, whose queriers do not "
        "read it. Empty: production.",
    )
    production: AnyAddresses = Field(
        (),
        description="HOST:PORT[,HOST:PORT] of production's processes of this role: an experiment refuses to start at "
        "one of them. Only with experiment.",
    )

    @model_validator(mode="after")
    def _check_production(self) -> ExperimentFields:
        if self.production and not self.experiment:
            raise ValueError("production needs experiment: name the experiment too")
        return self


def fraction(text: str) -> float:
    """Parses "5%" or "0.1%", above 0 and at most 100. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)\s*%", text)
    if not match or not 0 < float(match[1]) <= 100:
        raise ValueError(f"{text!r} is not a percentage above 0 and at most 100, such as 5%")
    return float(match[1]) / 100


def _percentage(text: str) -> str:
    fraction(text)
    return text


def _shadow(text: str) -> str:
    if text and not host_port(text).port:
        raise ValueError(f"{text!r} has no port to connect to")
    return text


class ShadowFields(BaseModel):
    """The shadow of a querier, and bounds of what it may use."""

    shadow: Annotated[str, AfterValidator(_shadow)] = Field(
        "",
        description="HOST:PORT of another querier or store of the same log. It gets a share of the reads beside their "
        "answer, and its answers are compared; it never delays a read. Empty: none.",
    )
    share: Annotated[str, AfterValidator(_percentage)] = Field(
        "1%", description="Share of the Select and PromQL reads that the shadow gets, such as 5%. Only with shadow."
    )
    shadow_tls: bool = Field(False, description="Use TLS for the connection to the shadow.")
    shadow_tls_ca_file: Path | None = Field(
        None, description="PEM CA of the shadow; without it the system's. Only with shadow_tls."
    )
    shadow_token: SecretStr | None = Field(None, description="Bearer token for the shadow.")
    shadow_token_file: Path | None = Field(
        None, description="File with the bearer token for the shadow; read at the start."
    )
    shadow_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="Seconds for one read of the shadow; after this time the read is a failure."
    )
    shadow_bytes_max: int = Field(
        64 << 20,
        ge=1 << 20,
        le=1 << 40,
        description="Bytes of answers that wait for their comparison; a read above it is not compared.",
    )
    shadow_dir: str = Field(
        "",
        description="Folder for the newest reads whose answers differ, for `tsdb shadow diff`; empty: none are kept.",
    )
    shadow_kept_max: int = Field(
        100, ge=1, le=10_000, description="Reads in shadow_dir, at most some 200 KiB each; the oldest are removed."
    )

    @model_validator(mode="after")
    def _check_shadow(self) -> ShadowFields:
        if self.shadow_tls_ca_file and not self.shadow_tls:
            raise ValueError("shadow_tls_ca_file needs shadow_tls")
        if self.shadow_token and self.shadow_token_file:
            raise ValueError("shadow_token and shadow_token_file: give one of them")
        return self
