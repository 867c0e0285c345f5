"""Settings of the canary: the servers that it checks, its credentials, and the samples that it writes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, SecretStr, model_validator

from tsdb.config.common import ProcessSettings
from tsdb.config.types import Target


class CanaryFields(BaseModel):
    """The gateway and the querier of a canary, and its samples."""

    gateway: Target = Field(description="HOST:PORT of the gateway's gRPC server, to which the canary writes.")
    querier: Target = Field(description="HOST:PORT of the querier's gRPC server, from which the canary reads.")
    target_tls: bool = Field(False, description="Use TLS for the connections to gateway and querier.")
    target_tls_ca_file: Path | None = Field(
        None, description="PEM CA of gateway and querier; without it the system's. Only with target_tls."
    )
    target_tls_cert_file: Path | None = Field(
        None, description="PEM client certificate. Only with target_tls and target_tls_key_file."
    )
    target_tls_key_file: Path | None = Field(None, description="PEM key of target_tls_cert_file.")
    write_token: SecretStr | None = Field(None, description="Bearer token for the gateway.")
    write_token_file: Path | None = Field(
        None, description="File with the bearer token for the gateway; read at the start."
    )
    read_token: SecretStr | None = Field(None, description="Bearer token for the querier.")
    read_token_file: Path | None = Field(
        None, description="File with the bearer token for the querier; read at the start."
    )
    canary_name: str = Field(
        "",
        max_length=100,
        pattern=r"^[A-Za-z0-9._-]*$",
        description="Label `canary` of the samples, kept over restarts: history is then checked back to before the "
        "start. Empty: the name of the host.",
    )
    canary_series: int = Field(
        16,
        ge=1,
        le=64,
        description="Series that the canary writes, each from a separate source. More reach more partitions; another "
        "figure begins new series.",
    )
    canary_period_s: float = Field(
        10.0,
        ge=0.1,
        le=3600,
        multiple_of=0.1,
        description="Seconds between two samples of a series; a sample must be visible within 8 tenths of them. "
        "Another figure begins new series.",
    )
    canary_check_s: float = Field(
        60.0, ge=0.1, le=86_400, description="Seconds between two checks of memory, seam, history and PromQL."
    )
    canary_history_s: float = Field(
        86_400.0,
        ge=60,
        le=31_536_000,
        description="Seconds before memory in which history is checked, a piece at each check.",
    )

    @model_validator(mode="after")
    def _check_access(self) -> CanaryFields:
        if bool(self.target_tls_cert_file) != bool(self.target_tls_key_file):
            raise ValueError("target_tls_cert_file and target_tls_key_file go together: one of them is missing")
        if not self.target_tls and (self.target_tls_ca_file or self.target_tls_cert_file):
            raise ValueError("target_tls_* files need target_tls")
        for side in ("write", "read"):
            if getattr(self, f"{side}_token") and getattr(self, f"{side}_token_file"):
                raise ValueError(f"{side}_token and {side}_token_file: give one of them")
        return self


class CanarySettings(CanaryFields, ProcessSettings):
    """All settings of the role `canary`."""

    @classmethod
    def derived(cls, values: dict[str, Any]) -> dict[str, Any]:
        if not values.get("canary_name"):
            values["canary_name"] = socket.gethostname()
        return values
