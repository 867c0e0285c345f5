"""The shapes of the rows."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import grpc

from tsdb.client import Client, TsdbError

# Names of roles. In arguments a name stands for the gRPC address, and the name with "-http" for the HTTP address.
STORE, GATEWAY = "@store", "@gateway"


@dataclass(frozen=True, slots=True)
class Command:
    """A command that ends with one line on stderr.

    line: as typed in a shell. words: part of that line. code: 2 for a misuse, 1 for a failure.
    """

    line: str
    words: str
    code: int = 2
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([*(f"{name}={value}" for name, value in self.env.items()), self.line])[:100]

    def arguments(self, places: Mapping[str, str]) -> list[str]:
        """As a shell splits them, addresses put in."""
        return [places.get(argument, argument) for argument in shlex.split(self.line)]


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file that `tsdb write` refuses. refused: it is the gateway that refuses its samples, and stdout counts them."""

    name: str
    content: bytes
    words: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.content[:50]!r}"


@dataclass(frozen=True, slots=True)
class Call:
    """A message that a server refuses. method: the path without the package. words: part of the status's details."""

    method: str
    request: bytes
    words: str
    code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT

    def __str__(self) -> str:
        return f"{self.method} {self.words}"


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes to a port of a store. answer: part of what comes back; empty: the connection is closed."""

    name: str
    port: str
    sent: bytes
    answer: bytes = b""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Use:
    """A call of tsdb.client that raises."""

    name: str
    use: Callable[[Client], object]
    words: str
    error: type[TsdbError]

    def __str__(self) -> str:
        return self.name
