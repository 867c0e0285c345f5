"""Hosts: the addresses of a history's cluster, parsed from its URL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tsdb.model.errors import ConfigMismatch
from tsdb.model.secrets import masked, url_names_a_user

CASSANDRA = "cassandra://"
CASSANDRA_PORT = 9042

_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")  # A name that needs no quotes.
_HOST = re.compile(r"(?P<host>[\w.-]+)(:(?P<port>\d{1,5}))?")


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
        f"history URL {masked(url)!r}: {why}; want cassandra://host[:port][,host]/keyspace or sqlite:///path",
        reason="history_url",
    )
