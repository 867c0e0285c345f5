"""Connections that idle, trickle or do not read never keep a probe from its answer, and end in time."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from support.counters import sample
from support.servers.certificates import Authority
from support.servers.logs import wait_until
from tsdb.model.defaults import HTTP_HEADER_BYTES_MAX
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.connections import HttpLimits
from tsdb.ops.http.server import OpsServer, serve_ops
from tsdb.ops.tls import ServerTls

# Time limits far above the time of a test, so an answered probe did not wait for one of them.
PATIENT = HttpLimits(header_timeout_s=600.0, idle_timeout_s=600.0, request_timeout_s=600.0)
SMALL = replace(PATIENT, connections_max=8, requests_max=2)
GET_READY = b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n"
IDLE_S = 0.5


@contextmanager
def ops(limits: HttpLimits, *, tls: ServerTls | None = None, routes: tuple[Route, ...] = ()) -> Iterator[OpsServer]:
    with serve_ops("127.0.0.1", 0, Readiness, Liveness, limits=limits, tls=tls, routes=routes) as server:
        yield server


def probe(server: OpsServer, tls: ssl.SSLContext | None = None) -> None:
    """Fails unless /-/ready answers 200 on a new connection."""
    connection: http.client.HTTPConnection
    if tls:
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=tls)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/-/ready")
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)


def get(server: OpsServer, path: str) -> tuple[int, str]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def connect(server: OpsServer, stack: ExitStack, sent: bytes = b"") -> socket.socket:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
    connection.sendall(sent)
    return connection


def is_closed(connection: socket.socket, within_s: float = 60.0) -> bool:
    connection.settimeout(within_s)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def trickle(connection: socket.socket, data: bytes) -> None:
    for byte in data:
        connection.sendall(bytes((byte,)))
        time.sleep(0.02)  # A slow sender pauses between bytes.


@pytest.mark.parametrize(
    "sent", [b"", b"GET /-/rea", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["idle", "half", "kept"]
)
def test_a_probe_gets_in_however_many_are_connected(sent: bytes) -> None:
    before = sample("tsdb_http_connections_closed_total", reason="connections")
    with ops(SMALL) as server, ExitStack() as stack:
        for _ in range(100):
            connect(server, stack, sent)
        for _ in range(5):
            probe(server)
        assert sample("tsdb_http_connections") <= 8
    assert sample("tsdb_http_connections_closed_total", reason="connections") >= before + 90


def test_a_header_over_its_bound_is_refused_and_one_below_is_not() -> None:
    with ops(SMALL) as server, ExitStack() as stack:
        field = b"GET / HTTP/1.1\r\nHost: x\r\nx: "
        below = connect(server, stack, field + b"x" * (HTTP_HEADER_BYTES_MAX - 100) + b"\r\n\r\n")
        assert below.recv(65_536).startswith(b"HTTP/1.1 200 ")
        over = connect(server, stack, field + b"x" * HTTP_HEADER_BYTES_MAX)
        assert over.recv(65_536).startswith(b"HTTP/1.1 431 ")
        assert is_closed(over)


def send_forever(connection: socket.socket) -> None:
    while True:
        connection.sendall(bytes(65_536))


@pytest.mark.parametrize("path", ["/-/ready", "/metrics"])
def test_a_body_without_end_is_not_kept_and_its_connection_is_cut_off_in_time(path: str) -> None:
    tracemalloc.start()
    with ops(HttpLimits(header_timeout_s=0.5, idle_timeout_s=0.5)) as server, ExitStack() as stack:
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 30}\r\n\r\n"
        connection = connect(server, stack, head.encode())
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        with pytest.raises(OSError, match=r"reset|pipe|abort"):
            send_forever(connection)
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - before < 4 << 20


def test_the_longest_idle_connection_makes_room() -> None:
    with ops(SMALL) as server, ExitStack() as stack:
        first = connect(server, stack)
        others = [connect(server, stack) for _ in range(7)]
        assert not is_closed(first, 0.2)
        probe(server)
        assert is_closed(first)
        assert not is_closed(others[-1], 0.1)


def test_a_header_that_trickles_is_cut_off_in_time() -> None:
    before = sample("tsdb_http_connections_closed_total", reason="header_timeout")
    with ops(HttpLimits(header_timeout_s=0.3)) as server, ExitStack() as stack:
        connection = connect(server, stack)
        with pytest.raises(OSError):  # The whole would take 20 s and more.
            trickle(connection, b"GET /-/ready HTTP/1.1\r\nX: " + b"x" * 1000)
    assert sample("tsdb_http_connections_closed_total", reason="header_timeout") == before + 1


def test_a_second_header_that_trickles_is_cut_off_too() -> None:
    before = sample("tsdb_http_connections_closed_total", reason="header_timeout")
    with ops(replace(PATIENT, header_timeout_s=0.3)) as server, ExitStack() as stack:
        answer = b""
        while (
            not answer
        ):  # A pause of this process may be longer than the limit, and then the first header is late too.
            connection = connect(server, stack, GET_READY)
            with contextlib.suppress(ConnectionError):
                answer = connection.recv(10)
            before += not answer
        assert answer.startswith(b"HTTP/1.1")
        connection.sendall(b"GET /")
        assert is_closed(connection)
        wait_until(lambda: sample("tsdb_http_connections_closed_total", reason="header_timeout") == before + 1)


def test_an_idle_connection_is_closed_in_time() -> None:
    before = sample("tsdb_http_connections_closed_total", reason="idle_timeout")
    with ops(replace(PATIENT, idle_timeout_s=IDLE_S)) as server, ExitStack() as stack:
        connection = connect(server, stack, GET_READY)
        assert connection.recv(10).startswith(b"HTTP/1.1")
        assert is_closed(connection)
        wait_until(lambda: sample("tsdb_http_connections_closed_total", reason="idle_timeout") == before + 1)


def test_a_busy_connection_outlives_the_limit_of_idle_ones() -> None:
    with ops(replace(PATIENT, idle_timeout_s=IDLE_S)) as server, ExitStack() as stack:
        wait_until(lambda: _is_kept_while_busy(connect(server, stack)))


def _is_kept_while_busy(busy: socket.socket) -> bool:
    """Whether the connection served requests for twice the limit. False after a pause of this process that was longer
    than the limit: then the server is right to close it."""
    began = answered = time.monotonic()
    while answered - began < 2 * IDLE_S:
        time.sleep(IDLE_S / 5)
        is_answered = False
        with contextlib.suppress(OSError):
            busy.sendall(GET_READY)
            is_answered = bool(busy.recv(65_536))
        before, answered = answered, time.monotonic()
        if answered - before >= IDLE_S:
            return False
        assert is_answered, f"closed after {answered - before:g} s without a request"
    return True


async def large(_request: Request) -> Response:
    return PlainTextResponse(b"x" * (16 << 20))


def unread(server: OpsServer, stack: ExitStack) -> None:
    """A connection whose large answer is not read."""
    connect(server, stack, b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")


def test_an_answer_that_nobody_reads_is_cut_off_in_time() -> None:
    before = sample("tsdb_http_connections_closed_total", reason="request_timeout")
    limits = replace(PATIENT, request_timeout_s=0.5)
    with ops(limits, routes=(Route("/large", large),)) as server, ExitStack() as stack:
        unread(server, stack)
        wait_until(lambda: sample("tsdb_http_connections_closed_total", reason="request_timeout") == before + 1)


def test_answers_that_nobody_reads_keep_no_probe_from_its_answer() -> None:
    with ops(PATIENT, routes=(Route("/large", large),)) as server, ExitStack() as stack:
        for _ in range(4):
            unread(server, stack)
        for _ in range(5):
            probe(server)


def test_requests_too_many_are_refused_and_probes_are_not() -> None:
    release = threading.Event()

    def slow(_request: Request) -> Response:
        assert release.wait(60.0)
        return PlainTextResponse("done")

    with ops(SMALL, routes=(Route("/slow", slow),)) as server, ExitStack() as stack:
        stack.callback(release.set)
        for _ in range(2):
            connect(server, stack, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        give_up_at = time.monotonic() + 60
        while (answer := get(server, "/"))[0] != 503:
            assert time.monotonic() < give_up_at
        assert "limit is 2" in answer[1]
        probe(server)


def test_handshakes_that_never_come_make_room_and_end_in_time(tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path)
    trust = ssl.create_default_context(cafile=str(authority.ca_file))
    tls = ServerTls(*authority.issue("server"))
    with ops(SMALL, tls=tls) as server, ExitStack() as stack:
        for _ in range(50):
            connect(server, stack)
        probe(server, trust)
    with ops(replace(SMALL, header_timeout_s=0.3), tls=tls) as server, ExitStack() as stack:
        assert is_closed(connect(server, stack))


def test_probes_are_answered_with_no_file_descriptor_left(caplog: pytest.LogCaptureFixture) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ops(PATIENT) as server, ExitStack() as stack:
        ours = [socket.socket() for _ in range(100)]  # Descriptors of the attackers, who share those of this process.
        for one in ours:
            stack.enter_context(one)
        prober = ours.pop()
        lowest_free = prober.fileno()
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 12, before[1]))
        for one in ours:
            one.settimeout(60)
            one.connect(("127.0.0.1", server.port))
        prober.settimeout(60)
        prober.connect(("127.0.0.1", server.port))
        prober.sendall(GET_READY)
        assert prober.recv(100).startswith(b"HTTP/1.1 200")
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert sample("tsdb_http_accept_failures_total") > 0
