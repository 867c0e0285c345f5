"""Settings of the connection to history, for the roles that read or write it."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field, SecretStr, model_validator

from tsdb.config.types import HistoryUrl
from tsdb.history.settings import CassandraAccess, HistorySettings
from tsdb.model.errors import ConfigMismatch


class HistoryFields(BaseModel):
    """Address, credentials and limits of history."""

    history: HistoryUrl = Field(
        "",
        description="History: cassandra://HOST[,HOST]/KEYSPACE or sqlite:///PATH (a loader: or parquet:///FOLDER); "
        "empty: no history, reads use memory only.",
    )
    history_write_timeout_s: float = Field(
        10.0, gt=0, le=600, description="Seconds for one write to history; after this time the write is retried."
    )
    history_read_timeout_s: float = Field(10.0, gt=0, le=600, description="Seconds for one page of a read of history.")
    history_inflight_bytes_max: int = Field(
        4 << 20,
        ge=1 << 20,
        le=1 << 30,
        description="Bytes of writes that wait for history; a connection of Cassandra's driver refuses at some 6 MiB.",
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
