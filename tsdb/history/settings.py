"""Settings of a history connection, as plain values; `tsdb.config` fills them from files, environment and flags.

The addresses of a history's cluster are parsed from its URL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tsdb.model import defaults
from tsdb.model.errors import ConfigMismatch
from tsdb.model.meta import PART_BYTES_MAX
from tsdb.model.secrets import masked, url_names_a_user

MIB = 1024 * 1024

CASSANDRA = "cassandra://"
ICEBERG_FILE, ICEBERG_S3 = "iceberg+file:///", "iceberg+s3://"
CASSANDRA_PORT = 9042

_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")  # A name that needs no quotes.
_HOST = re.compile(r"(?P<host>[\w.-]+)(:(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class CassandraAccess:
    """Access to a cluster. Empty strings leave the driver's defaults. Secrets are in no repr.

    local_dc: data centre whose replicas answer; empty: data centre of the first node reached.
    ssl_check_names: a node's certificate must name the address used for the connection.
    password_file is read at each connect, so that a mounted secret can be rotated; it wins over password.
    """

    local_dc: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    ssl_ca_location: str = ""
    ssl_check_names: bool = True
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""

    def secret(self) -> str:
        """The password. Raises ConfigMismatch (history_settings) when its file cannot be read."""
        if not self.password_file:
            return self.password
        try:
            return Path(self.password_file).read_text().strip()
        except OSError as error:
            raise ConfigMismatch(f"password_file: {error}", reason="history_settings") from error


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Settings of one process's connection to history.

    part_bytes_max: longer values are refused before they are sent; the shared setting of the same name.
    inflight_bytes_max: bytes of writes without an answer. A connection of Cassandra's driver refuses at some 6 MiB.
    write_timeout_s: bound of one write, and of the wait before it begins. read_timeout_s: bound of one page of a read.
    silence_s: reads are refused while a cluster has answered nothing at all for this long. page_bytes_target: target
    size of a page of a read; the number of rows per page follows the size of rows. reads_ahead_max: pages of a read
    that are fetched at once. speculate_after_s: a read without an answer for this long is sent to one more replica.
    cache_folder, cache_bytes_max: cache on disk of a table's files in object storage; None: the temporary folder.
    decoded_bytes_max: row groups of a table in memory, for the next reads; 0: none.
    access: credentials and TLS of Cassandra.
    """

    part_bytes_max: int = PART_BYTES_MAX
    inflight_bytes_max: int = defaults.HISTORY_INFLIGHT_BYTES_MAX
    write_timeout_s: float = defaults.HISTORY_WRITE_TIMEOUT_S
    read_timeout_s: float = defaults.HISTORY_READ_TIMEOUT_S
    silence_s: float = 10.0
    page_bytes_target: int = 2 * MIB
    reads_ahead_max: int = 32
    speculate_after_s: float = 0.5
    cache_folder: Path | None = None
    cache_bytes_max: int = defaults.HISTORY_CACHE_BYTES_MAX
    decoded_bytes_max: int = defaults.HISTORY_DECODED_BYTES_MAX
    access: CassandraAccess = CassandraAccess()

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int | float) and value <= 0 and (name, value) != ("decoded_bytes_max", 0):
                raise ConfigMismatch(f"{name} must be above 0; got {value}", reason="history_settings")
        if self.inflight_bytes_max < self.part_bytes_max:
            raise ConfigMismatch(
                f"inflight_bytes_max must hold a part of part_bytes_max ({self.part_bytes_max}); "
                f"got {self.inflight_bytes_max}",
                reason="history_settings",
            )


@dataclass(frozen=True, slots=True)
class Hosts:
    """names: contact points, hosts or addresses; the driver finds the rest of the cluster through them."""

    names: tuple[str, ...]
    port: int
    keyspace: str

    @classmethod
    def parse(cls, url: str) -> Hosts:
        """Parse `cassandra://host[:port][,host[:port]]/keyspace`. Raises ConfigMismatch (history_url)."""
        if url_names_a_user(url):
            raise bad_url(url, "it names a user; credentials belong into the settings")
        hosts, _, keyspace = url.removeprefix(CASSANDRA).rstrip("/").partition("/")
        if not _KEYSPACE.fullmatch(keyspace):
            raise bad_url(url, f"{keyspace!r} is no keyspace (a-z, 0-9 and _, at most 48, a letter first)")
        names: list[str] = []
        ports: set[int] = set()
        for host in hosts.split(","):
            match = _HOST.fullmatch(host)
            if match is None:
                raise bad_url(url, f"{host!r} is not host or host:port")
            names.append(match["host"])
            ports.add(int(match["port"] or CASSANDRA_PORT))
        if len(ports) > 1:
            raise bad_url(url, "all hosts of a cluster have one port")
        return cls(tuple(names), ports.pop(), keyspace)


def bad_url(url: str, why: str) -> ConfigMismatch:
    """The error for a wrong URL of a history."""
    return ConfigMismatch(
        f"history URL {masked(url)!r}: {why}; want cassandra://host[:port][,host]/keyspace, sqlite:///path, or for"
        " queriers iceberg+file:///folder or iceberg+s3://bucket/folder",
        reason="history_url",
    )
