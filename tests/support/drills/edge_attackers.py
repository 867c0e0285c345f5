"""Attackers of a port, in a separate process: connections that idle, trickle or stop half-way, and bombs."""

from __future__ import annotations

import contextlib
import gzip
import multiprocessing
import resource
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, Self

import grpc

from support.servers.logs import wait_until

MIB = 1 << 20
SWEEP_S = 0.2
PAUSE_S = 1.0  # Pause between two rounds of bombs, because servers and bystander share two cores with this process.
CHANNELS = 8
ROUND_S = 60.0
STARTED_WITHIN_S = 60.0
HTTP_HALF = b"GET /-/ready HTTP/1.1\r\nHost: "
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HTTP2_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
WRITE_BYTES = 16 * MIB  # The largest request by default, so that its size alone is no reason to refuse it.
READ_BYTES = 4 * MIB
SLACK_BYTES = 64
WRITE = "/tsdb.v1.Ingest/Write"
SELECT = "/tsdb.v1.Reader/Select"
HEALTH = "/grpc.health.v1.Health/Check"
HTTP = "HTTP"  # Stands in place of a method for a bomb on the HTTP port.
HTTP_BODY = 8 * MIB
HTTP_ROUND_S = 2.0
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@dataclass(frozen=True, slots=True)
class Crowd:
    """`count` connections to host:port that send `first` at once and then a byte of `slowly` each SWEEP_S."""

    address: str
    count: int
    first: bytes = b""
    slowly: bytes = b""


@dataclass(frozen=True, slots=True)
class Bombs:
    """`count` calls at once of a method, again and again: requests of a kind of `BOMBS`, or HTTP_BOMBS for HTTP."""

    address: str
    method: str
    kind: str
    count: int = 64


def crowds(address: str, count: int, *, http: bool) -> list[Crowd]:
    """Idle, slow and half-open connections, `count` in all."""
    each = count // 3
    half = HTTP_HALF if http else HTTP2_PREFACE[:10]
    greeted = b"" if http else HTTP2_PREFACE + HTTP2_SETTINGS
    slowly = HTTP_HALF + b"x" * 10_000 if http else HTTP2_PREFACE
    return [Crowd(address, each, greeted), Crowd(address, each, b"", slowly), Crowd(address, each, half)]


def bomb_kinds(write: bool) -> list[tuple[str, str]]:
    """Method and kind of each bomb for a role that takes writes, or reads."""
    method = WRITE if write else SELECT
    mine = [
        (method, kind)
        for kind in ("gzip", "tiny_fields", "tiny_nested_fields", "huge_arrays", "huge_field", "malformed")
    ]
    services = [(HEALTH, "malformed"), (HEALTH, "gzip"), (REFLECTION, "malformed"), (REFLECTION, "tiny_fields")]
    return [*mine, *services, *http_bomb_kinds()]


def http_bomb_kinds() -> list[tuple[str, str]]:
    """The kinds of bombs for an HTTP port; see bomb_kinds."""
    return [(HTTP, kind) for kind in HTTP_BOMBS]


def _field(number: int, size: int) -> bytes:
    out, value = bytearray((number << 3 | 2,)), size
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value)) + bytes(size)


# Requests by kind; the argument is their approximate size when expanded, in bytes.
BOMBS: dict[str, Callable[[int], bytes]] = {
    "gzip": lambda size: gzip.compress(_field(4, size)),
    "tiny_fields": lambda size: b"\x0a\x00" * (size // 2),
    "tiny_nested_fields": lambda size: _field(9, size).rstrip(b"\x00") + b"\x1a\x00" * (size // 2),
    "huge_arrays": lambda size: _field(3, size // 2) + _field(4, size // 2),
    "huge_field": lambda size: _field(1, size),
    "malformed": lambda size: b"\x0a\xff" * 512,
}


def _http(fields: bytes, path: bytes = b"/metrics") -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n"


# Requests to an HTTP port by kind; each connection stays open until the end of its round.
HTTP_BOMBS: dict[str, bytes] = {
    "large_body": _http(b"Content-Length: %d\r\n" % (1 << 30)) + bytes(HTTP_BODY),
    "chunked_body": _http(b"Transfer-Encoding: chunked\r\n") + b"ffff\r\n%b\r\n" % bytes(0xFFFF) * (HTTP_BODY >> 16),
    "half_body": _http(b"Content-Length: %d\r\n" % (2 * MIB), b"/-/ready") + bytes(MIB),
    "long_header": _http(b"x: " + b"x" * MIB + b"\r\n"),
}


class Attack:
    """Runs attackers in one process until the context ends. When the context begins, each attacker has
    attacked once.
    """

    def __init__(self, attackers: Sequence[Crowd | Bombs]) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._begun = [context.Event() for _ in attackers]
        self._process = context.Process(target=_attack, args=(list(attackers), self._begun, self._stop), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        wait_until(lambda: all(event.is_set() for event in self._begun), STARTED_WITHIN_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._process.join(5.0)
        self._process.kill()
        self._process.join()
        self._process.close()


def _attack(attackers: Sequence[Crowd | Bombs], begun: Sequence[Event], stop: Event) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    running = [_step(one) for one in attackers]
    while not stop.is_set():
        for step, event in zip(running, begun, strict=True):
            step()
            event.set()
        stop.wait(PAUSE_S if any(isinstance(one, Bombs) for one in attackers) else SWEEP_S)


def _step(attacker: Crowd | Bombs) -> Callable[[], None]:
    if isinstance(attacker, Crowd):
        return _Crowding(attacker).sweep
    return _HttpBombing(attacker).throw if attacker.method == HTTP else _Bombing(attacker).throw


class _Crowding:
    def __init__(self, crowd: Crowd) -> None:
        host, _, port = crowd.address.rpartition(":")
        self._address = (host, int(port))
        self._crowd = crowd
        self._open: list[tuple[socket.socket, int]] = []

    def sweep(self) -> None:
        """Send the next byte on each connection, and open closed connections again."""
        self._open = [(one, sent + 1) for one, sent in self._open if self._alive(one, sent)]
        for _ in range(self._crowd.count - len(self._open)):
            with contextlib.suppress(OSError):
                connection = socket.create_connection(self._address, timeout=1.0)
                connection.setblocking(False)
                connection.send(self._crowd.first)
                self._open.append((connection, 0))

    def _alive(self, connection: socket.socket, sent: int) -> bool:
        try:
            connection.send(self._crowd.slowly[sent : sent + 1])
            if connection.recv(4096):
                return True
        except BlockingIOError:
            return True
        except OSError:
            pass
        connection.close()
        return False


class _Bombing:
    def __init__(self, bombs: Bombs) -> None:
        self._bombs = bombs
        largest = WRITE_BYTES if bombs.method == WRITE else READ_BYTES
        self._request = BOMBS[bombs.kind](largest - SLACK_BYTES)
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        self._channels = [grpc.insecure_channel(bombs.address, options) for _ in range(CHANNELS)]

    def throw(self) -> None:
        """Send all bombs at once and wait for every answer."""
        calls: list[Any] = []
        for number in range(self._bombs.count):
            channel = self._channels[number % CHANNELS]
            calls.append(channel.unary_unary(self._bombs.method, bytes, bytes).future(self._request, timeout=ROUND_S))
        give_up_at = time.monotonic() + ROUND_S
        while not all(call.done() for call in calls) and time.monotonic() < give_up_at:
            time.sleep(0.01)  # gRPC's futures have no wait for all of them.


class _HttpBombing:
    def __init__(self, bombs: Bombs) -> None:
        host, _, port = bombs.address.rpartition(":")
        self._address = (host, int(port))
        self._count = bombs.count
        self._request = memoryview(HTTP_BOMBS[bombs.kind])

    def throw(self) -> None:
        """Attack with all connections at once. Each sends as fast as the server reads, and reads only the end of its
        connection.
        """
        left: dict[socket.socket, memoryview] = {}
        for _ in range(self._count):
            with contextlib.suppress(OSError):
                connection = socket.create_connection(self._address, timeout=1.0)
                connection.setblocking(False)
                left[connection] = self._request
        give_up_at = time.monotonic() + HTTP_ROUND_S
        while left and time.monotonic() < give_up_at:
            for connection, request in list(left.items()):
                if (rest := _sent(connection, request)) is None:
                    connection.close()
                    del left[connection]
                else:
                    left[connection] = rest
            time.sleep(0.01)  # Sends a burst to each without a busy loop.
        for connection in left:
            connection.close()


def _sent(connection: socket.socket, request: memoryview) -> memoryview | None:
    """The part of a request that is left to send; None once the server has closed the connection."""
    try:
        if request:
            return request[connection.send(request) :]
        return request if connection.recv(65_536) else None
    except BlockingIOError:
        return request
    except OSError:
        return None
