"""Settings of the gateway: limits of one request, of one series, and of all requests together."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field, model_validator

from tsdb.config.common import CommonSettings

_MIB = 1 << 20


class GatewayFields(BaseModel):
    """Limits of the write path; the role `standalone` has them too."""

    labels_max: int = Field(64, ge=1, le=1024, description="Labels of one series, __name__ included.")
    label_name_bytes_max: int = Field(256, ge=1, le=65_535, description="UTF-8 bytes of one label name.")
    label_value_bytes_max: int = Field(2048, ge=1, le=65_535, description="UTF-8 bytes of one label value.")
    labels_bytes_max: int = Field(8192, ge=1, le=262_144, description="Bytes of all labels of one series.")
    request_bytes_max: int = Field(
        16 * _MIB, ge=1024, le=1024 * _MIB, description="Bytes of one write request; bounds the memory of one caller."
    )
    request_series_max: int = Field(100_000, ge=1, le=10_000_000, description="Series of one write request.")
    samples_max: int = Field(1_000_000, ge=1, le=100_000_000, description="Samples of one write request.")
    inflight_bytes_max: int = Field(
        256 * _MIB,
        ge=1024,
        le=1 << 40,
        description="Bytes of all requests that wait for the log; more are refused with a hint to retry.",
    )
    series_cache_max: int = Field(
        500_000, ge=1, le=100_000_000, description="Series in the cache; one outside costs an announcement a write."
    )
    series_cache_bytes_max: int = Field(
        256 * _MIB, ge=1024, le=1 << 40, description="Bytes of labels in the series cache."
    )
    source_series_max: int = Field(
        100_000,
        ge=0,
        le=100_000_000,
        description="Active series of one source (one placement) at this gateway: announced within the last one to two "
        "windows. New series above it are refused by name; known series are still accepted. The largest usual target "
        "has some 50,000.",
    )
    gateway_series_max: int = Field(
        2_000_000,
        ge=0,
        le=100_000_000,
        description="Active series of all sources at this gateway; new series above it are refused by name.",
    )
    series_limits_file: Path | None = Field(
        None,
        description="TOML file with source_series_max, gateway_series_max and limits of single sources; read again "
        "when it changes, so that a limit changes without a restart.",
    )
    produce_timeout_s: float = Field(
        10.0,
        gt=0,
        le=600,
        description="Longest wait for the log's answer, in seconds; a caller's deadline may be sooner.",
    )
    idempotence: bool = Field(
        True,
        description="Kafka's idempotent producer: a retry that lands late cannot beat a newer acknowledged write. "
        "Switch off only where its CPU cost matters more.",
    )

    @model_validator(mode="after")
    def _check_limits(self) -> GatewayFields:
        if self.inflight_bytes_max < self.request_bytes_max:
            raise ValueError(
                f"inflight_bytes_max {self.inflight_bytes_max} is below request_bytes_max {self.request_bytes_max}: "
                "the largest request would never be accepted"
            )
        return self


class GatewaySettings(GatewayFields, CommonSettings):
    """All settings of the role `gateway`."""
