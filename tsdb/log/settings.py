"""Settings of a log connection, as plain values; `tsdb.config` fills them from files, environment and flags."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tsdb.model.errors import ConfigMismatch

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """TLS and SASL settings, named as in librdkafka. Empty strings leave its defaults. Secrets are in no repr.

    sasl_password_file is read at each connect of a client, so that a mounted secret can be rotated; it wins over
    sasl_password.
    """

    protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    sasl_password_file: str = ""
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = field(default="", repr=False)

    def password(self) -> str:
        """The SASL password. Raises ConfigMismatch (log_settings) when its file cannot be read."""
        if not self.sasl_password_file:
            return self.sasl_password
        try:
            return Path(self.sasl_password_file).read_text().strip()
        except OSError as error:
            raise ConfigMismatch(f"sasl_password_file: {error}", reason="log_settings") from error


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of one process's connection to the log.

    client_id: name of this client in the brokers' logs and quotas. delivery_timeout_s: time after which an append is
    answered with Unavailable; less than the deadline of a write request. request_timeout_s: bound of every other
    request to a broker. idempotence: a retry that arrives late cannot overtake a newer record; without it only one
    request at a time is in flight. compression: the compression of Kafka's batches, as the client library names it:
    none, gzip, snappy, lz4, zstd. linger_ms: a record waits this long for others; higher makes larger batches and later
    answers. queue_bytes_max: bytes of appends that wait for an answer; above it appends are refused (Overloaded,
    queue_full). prefetch_bytes_max: per reader, fetched ahead of its poll. idle_readers_max: connections of closed
    readers that are kept for later readers, of Kafka. group_session_s: a silent group member keeps its partitions this
    long; Kafka's default minimum is 6 s. security: TLS and SASL of Kafka connections. embedded_bytes_max: size limit of
    an embedded log's database; above it appends are refused (disk_full). None: no limit. embedded_maintain_s: how often
    retention and compaction of an embedded log run. embedded_guest: append to an embedded log beside the process that
    holds its writer lock, as batch jobs do, which are in no group; retention and compaction are left to that process.
    embedded_claim: take the writer lock of an embedded log when it is opened, as roles that write do: a second one is
    refused at its start and not at each write.
    """

    client_id: str = "tsdb"
    delivery_timeout_s: float = 10.0
    request_timeout_s: float = 10.0
    idempotence: bool = True
    compression: str = "zstd"
    linger_ms: float = 1.0
    queue_bytes_max: int = 128 * MIB
    prefetch_bytes_max: int = 64 * MIB
    idle_readers_max: int = 0
    group_session_s: float = 10.0
    security: KafkaSecurity = KafkaSecurity()
    embedded_bytes_max: int | None = None
    embedded_maintain_s: float = 30.0
    embedded_guest: bool = False
    embedded_claim: bool = False

    def __post_init__(self) -> None:
        for name in ("delivery_timeout_s", "request_timeout_s", "queue_bytes_max", "prefetch_bytes_max"):
            if getattr(self, name) <= 0:
                raise ConfigMismatch(f"{name} must be above 0; got {getattr(self, name)}", reason="log_settings")
        if self.linger_ms < 0 or self.linger_ms >= self.delivery_timeout_s * 1000:
            raise ConfigMismatch(
                f"linger_ms must be at least 0 and below delivery_timeout_s ({self.delivery_timeout_s} s); "
                f"got {self.linger_ms}",
                reason="log_settings",
            )
