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
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from support.counters import sample
from support.servers.certificates import Authority
from tsdb.model.defaults import HTTP_HEADER_BYTES_MAX
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.connections import HttpLimits
from tsdb.ops.http.server import OpsServer, serve_ops
from tsdb.ops.tls import ServerTls

PROBE_WITHIN_S = 1.0
SMALL = HttpLimits(connections_max=8, requests_max=2)


@contextmanager
def ops(limits: HttpLimits, *, tls: ServerTls | None = None, routes: tuple[Route, ...] = ()) -> Iterator[OpsServer]:
    with serve_ops("127.0.0.1", 0, Readiness, Liveness, limits=limits, tls=tls, routes=routes) as server:
        yield server


def probe(server: OpsServer, tls: ssl.SSLContext | None = None) -> float:
    """Seconds until /-/ready has answered 200 on a new connection."""
    begin = time.monotonic()
    connection: http.client.HTTPConnection
    if tls:
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=10, context=tls)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/-/ready")
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)
    return time.monotonic() - begin


def get(server: OpsServer, path: str) -> tuple[int, str]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def connect(server: OpsServer, stack: ExitStack, sent: bytes = b"") -> socket.socket:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
    connection.sendall(sent)
    return connection


def is_closed(connection: socket.socket, within_s: float) -> bool:
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
        assert max(probe(server) for _ in range(5)) < PROBE_WITHIN_S
        assert sample("tsdb_http_connections") <= 8
    assert sample("tsdb_http_connections_closed_total", reason="connections") >= before + 90


def test_a_header_over_its_bound_is_refused_and_one_below_is_not() -> None:
    with ops(SMALL) as server, ExitStack() as stack:
        field = b"GET / HTTP/1.1\r\nHost: x\r\nx: "
        below = connect(server, stack, field + b"x" * (HTTP_HEADER_BYTES_MAX - 100) + b"\r\n\r\n")
        assert below.recv(65_536).startswith(b"HTTP/1.1 200 ")
        over = connect(server, stack, field + b"x" * HTTP_HEADER_BYTES_MAX)
        assert over.recv(65_536).startswith(b"HTTP/1.1 431 ")
        assert is_closed(over, 5.0)


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
        assert probe(server) < PROBE_WITHIN_S
        assert is_closed(first, 5.0)
        assert not is_closed(others[-1], 0.1)


def test_a_header_that_trickles_is_cut_off_in_time() -> None:
    before = sample("tsdb_http_connections_closed_total", reason="header_timeout")
    with ops(HttpLimits(header_timeout_s=0.3)) as server, ExitStack() as stack:
        connection = connect(server, stack)
        begin = time.monotonic()
        with pytest.raises(OSError):
            trickle(connection, b"GET /-/ready HTTP/1.1\r\nX: " + b"x" * 1000)
        assert time.monotonic() - begin < 5.0
    assert sample("tsdb_http_connections_closed_total", reason="header_timeout") == before + 1


def test_a_second_header_that_trickles_is_cut_off_too() -> None:
    limits = HttpLimits(header_timeout_s=0.3, idle_timeout_s=30.0)
    with ops(limits) as server, ExitStack() as stack:
        connection = connect(server, stack, b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(10).startswith(b"HTTP/1.1")
        connection.sendall(b"GET /")
        assert is_closed(connection, 5.0)


def test_an_idle_connection_is_closed_in_time_and_a_busy_one_is_not() -> None:
    with ops(HttpLimits(idle_timeout_s=0.5)) as server, ExitStack() as stack:
        idle, busy = (connect(server, stack, b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(2))
        for _ in range(10):
            time.sleep(0.1)  # Less than the limit, again and again.
            busy.sendall(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            assert busy.recv(65_536)
        assert is_closed(idle, 5.0)


def test_an_answer_that_nobody_reads_is_cut_off_in_time() -> None:
    async def large(_request: Request) -> Response:
        return PlainTextResponse(b"x" * (16 << 20))

    before = sample("tsdb_http_connections_closed_total", reason="request_timeout")
    # Probes have the same time, on a busy machine too.
    with ops(HttpLimits(request_timeout_s=1.5), routes=(Route("/large", large),)) as server, ExitStack() as stack:
        connect(server, stack, b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        give_up_at = time.monotonic() + 10
        while sample("tsdb_http_connections_closed_total", reason="request_timeout") == before:
            assert time.monotonic() < give_up_at
            probe(server)


def test_requests_too_many_are_refused_and_probes_are_not() -> None:
    release = threading.Event()

    def slow(_request: Request) -> Response:
        assert release.wait(30)
        return PlainTextResponse("done")

    with ops(SMALL, routes=(Route("/slow", slow),)) as server, ExitStack() as stack:
        stack.callback(release.set)
        for _ in range(2):
            connect(server, stack, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        give_up_at = time.monotonic() + 10
        while (answer := get(server, "/"))[0] != 503:
            assert time.monotonic() < give_up_at
        assert "limit is 2" in answer[1]
        assert probe(server) < PROBE_WITHIN_S


def test_handshakes_that_never_come_make_room_too(tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path)
    trust = ssl.create_default_context(cafile=str(authority.ca_file))
    limits = HttpLimits(connections_max=8, header_timeout_s=2.0)
    with ops(limits, tls=ServerTls(*authority.issue("server"))) as server, ExitStack() as stack:
        silent = [connect(server, stack) for _ in range(50)]
        probe(server, trust)
        assert is_closed(silent[-1], 10.0)


def test_probes_are_answered_with_no_file_descriptor_left(caplog: pytest.LogCaptureFixture) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ops(HttpLimits()) as server, ExitStack() as stack:
        ours = [socket.socket() for _ in range(100)]  # Descriptors of the attackers, who share those of this process.
        for one in ours:
            stack.enter_context(one)
        prober = ours.pop()
        lowest_free = prober.fileno()
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 12, before[1]))
        for one in ours:
            one.settimeout(10)
            one.connect(("127.0.0.1", server.port))
        prober.settimeout(PROBE_WITHIN_S)
        prober.connect(("127.0.0.1", server.port))
        prober.sendall(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        assert prober.recv(100).startswith(b"HTTP/1.1 200")
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert sample("tsdb_http_accept_failures_total") > 0
