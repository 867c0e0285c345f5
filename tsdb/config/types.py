"""Types of settings with their own syntax: parse addresses, URLs, lists of names and partitions."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from tsdb.model.secrets import url_names_a_user

PORT_MAX = 65_535
PARTITIONS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class HostPort:
    """An address to listen on or to connect to. An IPv6 host has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it. A name other than localhost may lead anywhere."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


def host_port(text: str) -> HostPort:
    """Parse HOST:PORT or [V6]:PORT. Port 0 means any free port. Raises ValueError."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]]+)):(\d{1,5})", text)
    if not match or int(match[3]) > PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to {PORT_MAX}")
    return HostPort(match[1] or match[2], int(match[3]))


def partition_ranges(text: str) -> tuple[int, ...]:
    """Parses "0-8", "3" or "0-3,7" into ascending partitions. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if not match or int(match[2] or match[1]) < int(match[1]) or int(match[2] or match[1]) >= PARTITIONS_MAX:
            raise ValueError(f"{text!r} is not a list of partitions such as 0-8 or 0-3,7 (below {PARTITIONS_MAX})")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def shard_of(text: str) -> tuple[int, int]:
    """Parses "i/n", i from 0 to n - 1. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if not match or int(match[1]) >= int(match[2]):
        raise ValueError(f"{text!r} is not INDEX/COUNT with an index from 0 to below the count, such as 0/3")
    return int(match[1]), int(match[2])


def _address(text: str) -> str:
    host_port(text)
    return text


def _log_url(text: str) -> str:
    _refuse_user(text, "kafka_sasl_username and TSDB_KAFKA_SASL_PASSWORD or kafka_sasl_password_file")
    brokers = text.removeprefix("kafka://")
    if brokers != text:
        for broker in brokers.split(","):
            host_port(broker)
    elif not text.startswith("sqlite:///") or len(text) == len("sqlite:///"):
        raise ValueError(f"{text!r} is neither kafka://HOST:PORT[,HOST:PORT] nor sqlite:///PATH")
    return text


def _history_url(text: str) -> str:
    _refuse_user(text, "cassandra_username and TSDB_CASSANDRA_PASSWORD or cassandra_password_file")
    if text and not re.fullmatch(
        r"(sqlite|parquet|iceberg\+file):///.+|iceberg\+s3://[^/\s]+/.+|cassandra://[^/\s]+/\w+", text
    ):
        raise ValueError(
            f"{text!r} is none of cassandra://HOST[,HOST]/KEYSPACE, sqlite:///PATH, parquet:///FOLDER,"
            " iceberg+file:///FOLDER and iceberg+s3://BUCKET/FOLDER"
        )
    return text


def _refuse_user(url: str, instead: str) -> None:
    if url_names_a_user(url):
        raise ValueError(f"a user or password in a URL shows in process lists and logs; use {instead}")


def _addresses(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("at least one HOST:PORT is wanted")
    return _any_addresses(names)


def _any_addresses(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not host_port(name).port:
            raise ValueError(f"{name!r} has no port to connect to")
    return names


def _target(text: str) -> str:
    return _addresses((text,))[0]


def _partitions(text: str) -> str:
    if text:
        partition_ranges(text)
    return text


def _shard(text: str) -> str:
    if text:
        shard_of(text)
    return text


def _names(value: object) -> object:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


Address = Annotated[str, AfterValidator(_address)]
Target = Annotated[str, AfterValidator(_target)]
LogUrl = Annotated[str, AfterValidator(_log_url)]
HistoryUrl = Annotated[str, AfterValidator(_history_url)]
Partitions = Annotated[str, AfterValidator(_partitions)]
Shard = Annotated[str, AfterValidator(_shard)]
# In flags and variables the names are separated by commas.
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Addresses = Annotated[tuple[str, ...], BeforeValidator(_names), AfterValidator(_addresses)]
AnyAddresses = Annotated[tuple[str, ...], BeforeValidator(_names), AfterValidator(_any_addresses)]
