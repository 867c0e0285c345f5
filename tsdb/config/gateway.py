"""Settings of the gateway: limit one request, one series, and all requests together."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, model_validator

from tsdb.config.common import ServiceSettings
from tsdb.config.types import Names
from tsdb.model import defaults
from tsdb.model.labels import LabelLimits

_MIB = 1 << 20
_LABELS = LabelLimits()


class GatewayFields(BaseModel):
    """Limits of the write path; the role `standalone` has them too."""

    labels_max: int = Field(_LABELS.labels_max, ge=1, le=1024, description="Labels of one series, __name__ included.")
    label_name_bytes_max: int = Field(
        _LABELS.name_bytes_max, ge=1, le=65_535, description="UTF-8 bytes of one label name."
    )
    label_value_bytes_max: int = Field(
        _LABELS.value_bytes_max, ge=1, le=65_535, description="UTF-8 bytes of one label value."
    )
    labels_bytes_max: int = Field(
        _LABELS.total_bytes_max, ge=1, le=262_144, description="Bytes of all labels of one series."
    )
    request_bytes_max: int = Field(
        defaults.REQUEST_BYTES_MAX,
        ge=1024,
        le=1024 * _MIB,
        description="Bytes of one write request; bounds the memory of one caller.",
    )
    request_series_max: int = Field(
        defaults.REQUEST_SERIES_MAX, ge=1, le=10_000_000, description="Series of one write request."
    )
    samples_max: int = Field(
        defaults.REQUEST_SAMPLES_MAX, ge=1, le=100_000_000, description="Samples of one write request."
    )
    request_exemplars_max: int = Field(
        defaults.REQUEST_EXEMPLARS_MAX,
        ge=0,
        le=1_000_000,
        description="Exemplars of one write request; the others are dropped and counted. 0: all are dropped, as stores "
        "and chunkers of a version without exemplars need it.",
    )
    inflight_bytes_max: int = Field(
        defaults.INFLIGHT_BYTES_MAX,
        ge=1024,
        le=1 << 40,
        description="Bytes of all requests that wait for the log; more are refused with a hint to retry.",
    )
    series_table_bytes: int = Field(
        defaults.SERIES_TABLE_BYTES,
        ge=64 << 10,
        le=1 << 40,
        description="Memory for the series that the gateway remembers; it grows up to this as series come. The default "
        "holds the 2 million series of gateway_series_max, with 1 GiB 10 million. More series cost some CPU a sample, "
        "and announcements from about twice as many on.",
    )
    source_series_max: int = Field(
        defaults.SOURCE_SERIES_MAX,
        ge=0,
        le=100_000_000,
        description="Active series of one source (one placement) at this gateway: announced within the last one to two "
        "windows. New series above it are refused by name; known series are still accepted. The largest usual target "
        "has some 50,000.",
    )
    gateway_series_max: int = Field(
        defaults.GATEWAY_SERIES_MAX,
        ge=0,
        le=100_000_000,
        description="Active series of all sources at this gateway; new series above it are refused by name.",
    )
    source_requests_per_s: float | None = Field(
        None,
        ge=0,
        le=1e12,
        description="Write requests a second of one source at this gateway; a request counts once for each of its "
        "sources. More are refused with the time after which to send again. Unset: no limit; 0: none are accepted.",
    )
    source_samples_per_s: float | None = Field(
        None, ge=0, le=1e12, description="Samples a second of one source at this gateway; as source_requests_per_s."
    )
    token_requests_per_s: float | None = Field(
        None,
        ge=0,
        le=1e12,
        description="Write requests a second of one bearer token at this gateway, whatever sources they are of; "
        "refused before the request is read. Unset: no limit; 0: none are accepted.",
    )
    token_samples_per_s: float | None = Field(
        None,
        ge=0,
        le=1e12,
        description="Samples a second of one bearer token at this gateway; as token_requests_per_s.",
    )
    rate_burst_s: float = Field(
        defaults.RATE_BURST_S,
        gt=0,
        le=3600,
        description="Seconds of its rate that a source or token may bring at once after it was quiet; agents send what "
        "they buffered.",
    )
    limits_file: Path | None = Field(
        None,
        description="TOML file with all limits of sources and tokens, for all and for single ones; read again when it "
        "changes, so that a limit changes without a restart.",
    )
    produce_timeout_s: float = Field(
        defaults.PRODUCE_TIMEOUT_S,
        gt=0,
        le=600,
        description="Longest wait for the log's answer, in seconds; a caller's deadline may be sooner.",
    )
    writes_on_one_core: bool = Field(
        True,
        description="Keep the threads of writes on one core, the one with the least other work. Python runs one of "
        "them at a time, and on several cores they spend half of their CPU on waking each other.",
    )
    http_write_threads: int = Field(
        defaults.WRITE_THREADS,
        ge=1,
        le=64,
        description="Threads that decode writes over HTTP of more than 16 KiB; smaller ones need none. They wait for "
        "nothing, so more than the cores do not help.",
    )
    native_histograms: Literal["keep", "classic", "refuse"] = Field(
        "keep",
        description="Native and exponential histograms: kept as they were sent, and start timestamps too; classic "
        "buckets at the boundaries of their schema; or refused by name.",
    )
    influx_names: Literal["sanitised", "utf8"] = Field(
        "sanitised",
        description="Influx line protocol: in measurements, fields and names of tags each character outside "
        "a-z A-Z 0-9 _ (and : in the name of a metric) becomes _, as in Prometheus's exporters. `utf8` keeps names as "
        "they come.",
    )
    influx_value_field: Literal["kept", "dropped"] = Field(
        "kept",
        description="Influx line protocol: the name of a metric is measurement_field. `dropped` leaves out the name of "
        "a field that is called value.",
    )
    influx_database_label: str = Field(
        "",
        pattern="^([a-zA-Z][a-zA-Z0-9_]*)?$",
        max_length=64,
        description="Influx line protocol: the label for the database or bucket of a request, on lines without a tag "
        "of that name. Empty: no label, so that a series is the same one whatever database its sender names.",
    )
    otlp_delta: Literal["native", "refuse"] = Field(
        "native",
        description="OTLP sums and histograms of delta temporality: stored as they come, a value for each interval, "
        "which `sum_over_time` adds; or refused by name. Exponential ones need native_histograms = keep.",
    )
    otlp_translation_strategy: Literal[
        "UnderscoreEscapingWithSuffixes",
        "UnderscoreEscapingWithoutSuffixes",
        "NoUTF8EscapingWithSuffixes",
        "NoTranslation",
    ] = Field(
        "UnderscoreEscapingWithSuffixes",
        description="Names of OTLP metrics and labels; Prometheus's otlp.translation_strategy.",
    )
    otlp_promote_resource_attributes: Names = Field(
        (), description="OTLP resource attributes that become labels of all series; the others are in target_info."
    )
    otlp_promote_all_resource_attributes: bool = Field(
        False, description="All OTLP resource attributes become labels, except otlp_ignore_resource_attributes."
    )
    otlp_ignore_resource_attributes: Names = Field(
        (), description="Not promoted; only with otlp_promote_all_resource_attributes."
    )
    otlp_keep_identifying_resource_attributes: bool = Field(
        False, description="target_info has service.name, service.namespace and service.instance.id too."
    )
    otlp_promote_scope_metadata: bool = Field(
        False, description="Name, version, schema URL and attributes of the OTLP scope become labels otel_scope_*."
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
        if self.otlp_promote_all_resource_attributes and self.otlp_promote_resource_attributes:
            raise ValueError(
                "otlp_promote_all_resource_attributes covers otlp_promote_resource_attributes: leave one out"
            )
        if self.otlp_ignore_resource_attributes and not self.otlp_promote_all_resource_attributes:
            raise ValueError("otlp_ignore_resource_attributes needs otlp_promote_all_resource_attributes = true")
        return self


class GatewaySettings(GatewayFields, ServiceSettings):
    """All settings of the role `gateway`."""
