"""Settings of all roles: listen addresses, credentials and logging; and the log, for roles that open it.

Settings of the connection to history, for the roles that read or write it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tsdb.config.sources import SharedEnvironment, SharedFile
from tsdb.config.types import Address, HistoryUrl, HostPort, LogUrl, Names, host_port
from tsdb.history.settings import CassandraAccess, HistorySettings
from tsdb.model import defaults
from tsdb.model.errors import ConfigMismatch
from tsdb.model.time_set import TimeSet, time_set

GROUP_POLL_S = 300.0  # Kafka's default of max.poll.interval.ms, which our groups keep.


class HistoryFields(BaseModel):
    """Address, credentials and limits of history."""

    history: HistoryUrl = Field(
        "",
        description="History: cassandra://HOST[,HOST]/KEYSPACE or sqlite:///PATH (a loader: or parquet:///FOLDER), or "
        "the Iceberg table of `tables` at iceberg+file:///FOLDER or iceberg+s3://BUCKET/FOLDER; empty: no history, "
        "reads use memory only.",
    )
    history_write_timeout_s: float = Field(
        defaults.HISTORY_WRITE_TIMEOUT_S,
        gt=0,
        le=600,
        description="Seconds for one write to history; after this time the write is retried.",
    )
    history_read_timeout_s: float = Field(
        defaults.HISTORY_READ_TIMEOUT_S, gt=0, le=600, description="Seconds for one page of a read of history."
    )
    history_inflight_bytes_max: int = Field(
        defaults.HISTORY_INFLIGHT_BYTES_MAX,
        ge=1 << 20,
        le=1 << 30,
        description="Bytes of writes that wait for history; a connection of Cassandra's driver refuses at some 6 MiB.",
    )
    history_cache_dir: Path | None = Field(
        None, description="Folder of the cache of an Iceberg table's files in object storage; empty: a temporary one."
    )
    history_cache_bytes_max: int = Field(
        defaults.HISTORY_CACHE_BYTES_MAX,
        ge=1 << 20,
        le=1 << 50,
        description="Bytes of that cache; the files used least recently are dropped.",
    )
    history_decoded_bytes_max: int = Field(
        defaults.HISTORY_DECODED_BYTES_MAX,
        ge=0,
        le=1 << 40,
        description="Bytes of decoded row groups of an Iceberg history in memory, for the next reads; 0: none. A read "
        "that needs more than a quarter of it keeps nothing.",
    )
    cassandra_local_dc: str = Field(
        "", description="Data centre whose replicas answer; empty: the one of the first reached node."
    )
    cassandra_username: str = Field("", description="Cassandra user; empty: no authentication.")
    cassandra_password: SecretStr | None = Field(None, description="Cassandra password; only with a user.")
    cassandra_password_file: Path | None = Field(None, description="File with the Cassandra password.")
    cassandra_ssl_ca_file: Path | None = Field(None, description="PEM CA of the nodes; it switches TLS on.")
    cassandra_ssl_check_names: bool = Field(
        True,
        description="Whether a node's certificate must contain the address of the node (an IP SAN where the cluster "
        "names nodes by IP); when off, any certificate of the CA is valid for any node.",
    )
    cassandra_ssl_certificate_file: Path | None = Field(None, description="PEM client certificate for the nodes.")
    cassandra_ssl_key_file: Path | None = Field(None, description="PEM key of cassandra_ssl_certificate_file.")

    @model_validator(mode="after")
    def _check_cassandra(self) -> Self:
        if self.cassandra_password and self.cassandra_password_file:
            raise ValueError("cassandra_password and cassandra_password_file: give one of them")
        if bool(self.cassandra_ssl_certificate_file) != bool(self.cassandra_ssl_key_file):
            raise ValueError(
                "cassandra_ssl_certificate_file and cassandra_ssl_key_file go together: one of them is missing"
            )
        if self.cassandra_ssl_key_file and not self.cassandra_ssl_ca_file:
            raise ValueError("cassandra_ssl_certificate_file and cassandra_ssl_key_file need cassandra_ssl_ca_file")
        return self

    def history_settings(self) -> HistorySettings:
        """The settings of history as plain values."""
        return HistorySettings(
            inflight_bytes_max=self.history_inflight_bytes_max,
            write_timeout_s=self.history_write_timeout_s,
            read_timeout_s=self.history_read_timeout_s,
            cache_folder=self.history_cache_dir,
            cache_bytes_max=self.history_cache_bytes_max,
            decoded_bytes_max=self.history_decoded_bytes_max,
            access=CassandraAccess(
                local_dc=self.cassandra_local_dc,
                username=self.cassandra_username,
                password=self.cassandra_password.get_secret_value() if self.cassandra_password else "",
                password_file=str(self.cassandra_password_file or ""),
                ssl_ca_location=str(self.cassandra_ssl_ca_file or ""),
                ssl_check_names=self.cassandra_ssl_check_names,
                ssl_certificate_location=str(self.cassandra_ssl_certificate_file or ""),
                ssl_key_location=str(self.cassandra_ssl_key_file or ""),
            ),
        )

    def required_history(self) -> str:
        """URL of history. Raises ConfigMismatch (history_url) when none is given."""
        if not self.history:
            raise ConfigMismatch("history is required: --history, TSDB_HISTORY or the file", reason="history_url")
        return self.history


class ProcessSettings(BaseSettings):
    """The HTTP server, its credentials, and the logs of a process."""

    # Most classes are only inherited from: a validator is built at the first use, which saves CPU at each start.
    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True, defer_build=True
    )

    config: Path | None = Field(None, description="TOML file with settings; one file may serve all roles.")

    http: Address = Field(
        "127.0.0.1:7411",
        description="HOST:PORT of the HTTP server: probes, metrics, writes at a gateway, the Prometheus API at a "
        "querier; port 0: any free one.",
    )
    http_connections_max: int = Field(
        defaults.HTTP_CONNECTIONS_MAX,
        ge=8,
        le=100_000,
        description="HTTP connections at once, and at most a quarter of the process's file descriptors; the oldest "
        "without a request is closed for a new one.",
    )
    http_header_timeout_s: float = Field(
        defaults.HTTP_HEADER_TIMEOUT_S,
        gt=0,
        le=3600,
        description="Seconds for the header of an HTTP request to arrive.",
    )
    http_idle_timeout_s: float = Field(
        defaults.HTTP_IDLE_TIMEOUT_S,
        gt=0,
        le=86_400,
        description="Seconds until an HTTP connection without a request is closed.",
    )
    http_request_timeout_s: float = Field(
        defaults.HTTP_REQUEST_TIMEOUT_S,
        gt=0,
        le=3600,
        description="Seconds from an HTTP request's header to the end of its answer, slow readers included.",
    )
    http_body_timeout_s: float = Field(
        defaults.HTTP_BODY_TIMEOUT_S,
        gt=0,
        le=3600,
        description="Seconds from an HTTP request's header to the end of its body; 16 MiB at 9 Mbit/s.",
    )
    http_url_bytes_max: int = Field(
        defaults.HTTP_URL_BYTES_MAX,
        ge=1024,
        le=1 << 20,
        description="Bytes of an HTTP request's URL; a longer one is refused with 414. Dashboards query by URL.",
    )
    http_header_bytes_max: int = Field(
        defaults.HTTP_HEADER_BYTES_MAX,
        ge=1024,
        le=1 << 20,
        description="Bytes of the fields of an HTTP request's header; more are refused with 431.",
    )
    http_hosts: Names = Field(
        (),
        description="Names of this server in URLs, beside its addresses and localhost. Without a token a request under "
        "another name is refused where the server listens on this machine alone, or where this setting has names: a "
        "web page may have made it.",
    )
    tls_cert_file: Path | None = Field(
        None, description="PEM certificate of our servers; with tls_key_file it switches TLS on."
    )
    tls_key_file: Path | None = Field(None, description="PEM key of tls_cert_file, without a passphrase.")
    tls_client_ca_file: Path | None = Field(
        None, description="PEM CA; gRPC callers must then send a certificate signed by it."
    )
    token: SecretStr | None = Field(
        None, description="Valid bearer tokens, separated by commas; each caller must send one of them."
    )
    token_file: Path | None = Field(
        None, description="File of bearer tokens, one a line; read again when it changes, so tokens can be rotated."
    )
    insecure_listen: bool = Field(
        False,
        description="Listen beyond this machine without a token; only where the network keeps others out.",
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged.")
    log_format: Literal["console", "json"] = Field("console", description="Logs as lines for a terminal or as JSON.")
    drain_s: float = Field(
        25.0,
        ge=0,
        le=3600,
        description="Seconds from SIGTERM to the end of the process; the last fifth (at most 2 s) is for dropping "
        "work. Below Kubernetes' 30 s, so that the process ends before it is killed.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        environment = SharedEnvironment(settings_cls)
        return init_settings, environment, SharedFile(settings_cls, init_settings, environment)

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, values: Any) -> Any:
        return cls.derived(dict(values))

    @classmethod
    def derived(cls, values: dict[str, Any]) -> dict[str, Any]:
        """`values` with defaults that depend on other settings, before validation. Roles override this."""
        return values

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise ValueError("tls_cert_file and tls_key_file go together: one of them is missing")
        if self.tls_client_ca_file and not self.tls_cert_file:
            raise ValueError("tls_client_ca_file needs tls_cert_file and tls_key_file")
        return self

    @property
    def http_listen(self) -> HostPort:
        return host_port(self.http)


class WorkerSettings(ProcessSettings):
    """The log of a process. A process with these settings alone has no gRPC server."""

    log: LogUrl = Field(description="The log: kafka://HOST:PORT[,HOST:PORT] or sqlite:///PATH (embedded).")
    log_prefix: str = Field(
        "",
        max_length=100,
        pattern=r"^[A-Za-z0-9._-]*$",
        description="Prefix of every topic name, so that several systems can share a cluster.",
    )
    time_set: Literal["production", "demo", "brief"] = Field(
        "production",
        description="Durations that all processes of one log must share; production: windows of 4 h; demo: of 30 s; "
        "brief: of 20 s.",
    )
    placement_labels: Names = Field(
        ("job", "instance"),
        description="Labels that name a source; its series share a partition. All processes of one log must agree.",
    )

    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="Security protocol of the connections to the brokers."
    )
    kafka_sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "", description="SASL mechanism; only with SASL_PLAINTEXT or SASL_SSL, where it is required."
    )
    kafka_sasl_username: str = Field("", description="SASL user; only with a mechanism.")
    kafka_sasl_password: SecretStr | None = Field(None, description="SASL password; only with a mechanism.")
    kafka_sasl_password_file: Path | None = Field(None, description="File with the SASL password.")
    kafka_ssl_ca_file: Path | None = Field(
        None, description="PEM CA of the brokers; without it the system's. Only with SSL or SASL_SSL."
    )
    kafka_ssl_certificate_file: Path | None = Field(None, description="PEM client certificate for the brokers.")
    kafka_ssl_key_file: Path | None = Field(None, description="PEM key of kafka_ssl_certificate_file.")

    @model_validator(mode="after")
    def _check_kafka(self) -> Self:
        if self.kafka_sasl_password and self.kafka_sasl_password_file:
            raise ValueError("kafka_sasl_password and kafka_sasl_password_file: give one of them")
        if bool(self.kafka_ssl_certificate_file) != bool(self.kafka_ssl_key_file):
            raise ValueError("kafka_ssl_certificate_file and kafka_ssl_key_file go together: one of them is missing")
        protocol = self.kafka_security_protocol
        if protocol.startswith("SASL") != bool(self.kafka_sasl_mechanism):
            raise ValueError(f"kafka_security_protocol {protocol} and kafka_sasl_mechanism do not fit together")
        if bool(self.kafka_sasl_mechanism) != bool(self.kafka_sasl_username):
            raise ValueError("kafka_sasl_mechanism and kafka_sasl_username go together: one of them is missing")
        if (self.kafka_ssl_ca_file or self.kafka_ssl_key_file) and not protocol.endswith("SSL"):
            raise ValueError(f"kafka_ssl_* settings need SSL or SASL_SSL; kafka_security_protocol is {protocol}")
        return self

    @property
    def times(self) -> TimeSet:
        """The durations of `time_set`."""
        return time_set(self.time_set)


class ServiceSettings(WorkerSettings):
    """The log and the gRPC server of a process."""

    grpc: Address = Field("127.0.0.1:7410", description="HOST:PORT of the gRPC server; port 0: any free one.")
    grpc_running_max: int = Field(
        defaults.GRPC_RUNNING_MAX,
        ge=1,
        le=10_000,
        description="gRPC calls at once, streams included; each has a thread. More are refused.",
    )
    grpc_waiting_max: int = Field(
        defaults.GRPC_WAITING_MAX,
        ge=2,
        le=10_000,
        description="gRPC calls that wait for a record, for memory or for their reader, beyond grpc_running_max; each "
        "has a thread. One connection may hold half. More are refused.",
    )
    send_timeout_s: float = Field(
        defaults.SEND_TIMEOUT_S,
        gt=0,
        le=3600,
        description="Seconds after which an answer that its reader does not read is cut.",
    )
    grpc_connections_max: int = Field(
        defaults.GRPC_CONNECTIONS_MAX,
        ge=1,
        le=100_000,
        description="gRPC connections at once, and at most half of the process's file descriptors; more are closed.",
    )
    grpc_idle_timeout_s: float = Field(
        defaults.GRPC_IDLE_TIMEOUT_S,
        ge=1,
        le=86_400,
        description="Seconds until a gRPC connection without a call is closed.",
    )

    @property
    def grpc_listen(self) -> HostPort:
        return host_port(self.grpc)


class CommonSettings(HistoryFields, ServiceSettings):
    """The log, the gRPC server and history. Frozen; unknown keys are refused. Created by `tsdb.config.load`."""


def check_group_drain(settings: WorkerSettings) -> None:
    """Raises ValueError for a drain after which the group has expelled the draining member."""
    if settings.drain_s >= GROUP_POLL_S and settings.log.startswith("kafka://"):
        raise ValueError(
            f"drain_s is {settings.drain_s:g}: a member that drains does not poll, and its group expels it after "
            f"{GROUP_POLL_S:g} s; give less"
        )
