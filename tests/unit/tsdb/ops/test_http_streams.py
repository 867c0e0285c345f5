"""Bodies that are made while they are sent: pieces in order, no faster than they are read, and an end in every case."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from support.counters import sample
from support.servers.certificates import Authority
from support.servers.logs import wait_until
from tsdb.model.errors import TsdbError
from tsdb.ops.byte_budget import RequestBytes, Reserved
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.bodies import HttpAnswer, HttpHead, JoinedRoutes, NoBodyRoutes, Reply
from tsdb.ops.http.connections import HttpLimits
from tsdb.ops.http.server import OpsServer, serve_ops
from tsdb.ops.tls import ServerTls

PIECE = b"x" * 100_000
WITHIN_S = 60.0


class Numbers:
    """A stream of `count` pieces; each begins with its number. fails_at: the piece that cannot be made."""

    def __init__(self, count: int, fails_at: int | None = None) -> None:
        self.count = count
        self.fails_at = fails_at
        self.made = 0
        self.closed = 0

    def make(self, deliver: Callable[[Sequence[bytes], bool], None]) -> None:
        threading.Thread(target=self._make, args=(deliver,)).start()

    def close(self) -> None:
        self.closed += 1

    def _make(self, deliver: Callable[[Sequence[bytes], bool], None]) -> None:
        if self.made == self.fails_at:
            deliver([], False)
            return
        self.made += 1
        deliver([b"%d," % self.made, PIECE], self.made == self.count)


class Route:
    """A BodyRoute that answers with `stream`. dropped: set when the peer has left. answers: whether it answers."""

    name = "/stream"
    bytes_max = 1000
    is_open = False

    def __init__(self, stream: Numbers, *, answers: bool = True, request_timeout_s: float | None = None) -> None:
        self.held = RequestBytes(1 << 20)
        self.request_timeout_s = request_timeout_s
        self.stream = stream
        self.answers = answers
        self.dropped = threading.Event()
        self.replies: list[Reply] = []

    def route(self, method: str, path: str) -> Route | None:
        return self if path == "/stream" else None

    def authorization(self, head: HttpHead) -> str | None:
        return None

    def check(self, head: HttpHead) -> None:
        """Every request is accepted."""

    def allows_origin(self, origin: str) -> bool:
        return False

    def handle(self, head: HttpHead, body: bytes | bytearray, reserved: Reserved, reply: Reply) -> None:
        reply.on_drop(self.dropped.set)
        self.replies.append(reply)
        if self.answers:
            self.answer()

    def answer(self) -> None:
        self.replies[-1](HttpAnswer(200, b"first,", stream=self.stream))

    def refusal(self, head: HttpHead, error: TsdbError) -> HttpAnswer:
        return HttpAnswer(400)


@contextlib.contextmanager
def served(route: Route, limits: HttpLimits | None = None, tls: ServerTls | None = None) -> Iterator[OpsServer]:
    bodies = JoinedRoutes((NoBodyRoutes(), route))
    with serve_ops("127.0.0.1", 0, Readiness, Liveness, bodies=bodies, limits=limits, tls=tls) as server:
        yield server


def connect(server: OpsServer, request: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=WITHIN_S)
    connection.sendall(request)
    return connection


def read_all(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(1 << 20), b""))


def unchunked(body: bytes) -> bytes:
    """The content of a chunked body, which must have its end."""
    found = bytearray()
    at = 0
    while True:
        start = body.index(b"\r\n", at) + 2
        end = start + int(body[at:start], 16)
        found += body[start:end]
        assert body[end : end + 2] == b"\r\n"
        at = end + 2
        if start == end:
            assert at == len(body)
            return bytes(found)


def whole(count: int) -> bytes:
    return b"first," + b"".join(b"%d," % number + PIECE for number in range(1, count + 1))


GET = b"GET /stream HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("count", [1, 2, 50])
def test_pieces_are_chunks_in_their_order(count: int) -> None:
    route = Route(Numbers(count))
    with served(route) as server:
        head, _, body = read_all(connect(server, GET)).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert b"content-length" not in head
    assert unchunked(body) == whole(count)
    assert route.stream.closed == 1
    assert not route.dropped.is_set()


def test_pieces_go_through_tls(tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path)
    route = Route(Numbers(50))
    with served(route, tls=ServerTls(*authority.issue("server"))) as server:
        context = ssl.create_default_context(cafile=str(authority.ca_file))
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=WITHIN_S)
        peer = context.wrap_socket(plain, server_hostname="127.0.0.1")
        peer.sendall(GET)
        _, _, body = read_all(peer).partition(b"\r\n\r\n")
    assert unchunked(body) == whole(50)
    assert route.stream.closed == 1


def test_a_peer_of_http_1_0_gets_no_chunks() -> None:
    route = Route(Numbers(3))
    with served(route) as server:
        head, _, body = read_all(connect(server, b"GET /stream HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert b"connection: close" in head
    assert body == whole(3)


def test_head_makes_no_piece() -> None:
    route = Route(Numbers(3))
    with served(route) as server:
        got = read_all(connect(server, GET.replace(b"GET", b"HEAD")))
    assert got.endswith(b"\r\n\r\n")
    assert (route.stream.made, route.stream.closed) == (0, 1)


def test_no_more_is_made_than_the_peer_reads() -> None:
    route = Route(Numbers(500))
    with served(route) as server, connect(server, GET) as peer:
        made = -1
        while made != (made := route.stream.made):
            threading.Event().wait(0.2)
        assert made < 200, "the buffers of two sockets hold some MB"
        received = b"".join(iter(lambda: peer.recv(1 << 20), b""))
    assert unchunked(received.partition(b"\r\n\r\n")[2]) == whole(500)


def test_a_peer_that_leaves_ends_the_stream() -> None:
    route = Route(Numbers(2000))
    with served(route) as server:
        with connect(server, GET) as peer:
            peer.recv(1000)
        wait_until(lambda: route.stream.closed == 1, WITHIN_S)
        assert not route.dropped.is_set(), "its answer was there"
        assert route.stream.made < 2000


def test_a_request_that_waits_does_not_hold_up_the_answer_before_it() -> None:
    route = Route(Numbers(300))
    kept = GET.replace(b"connection: close\r\n", b"")
    with served(route) as server:
        peer = connect(server, kept + GET.replace(b"/stream", b"/-/healthy"))
        made = -1
        while made != (made := route.stream.made):  # The transport takes no more.
            threading.Event().wait(0.2)
        assert made < 300
        first, end, second = read_all(peer).partition(b"\r\n0\r\n\r\n")
    assert unchunked(first.partition(b"\r\n\r\n")[2] + end) == whole(300)
    assert second.startswith(b"HTTP/1.1 200")


def test_a_peer_that_leaves_ends_the_stream_before_a_request_that_waits() -> None:
    route = Route(Numbers(2000))
    with served(route) as server:
        with connect(server, GET.replace(b"connection: close\r\n", b"") + GET) as peer:
            peer.recv(1000)
        wait_until(lambda: route.stream.closed == 1, WITHIN_S)
        assert len(route.replies) == 1, "the second was not begun"


def test_a_peer_that_leaves_before_its_answer_is_told_to_the_route() -> None:
    route = Route(Numbers(3), answers=False)
    with served(route) as server:
        with connect(server, GET):
            wait_until(lambda: bool(route.replies), WITHIN_S)
            assert not route.dropped.is_set()
        assert route.dropped.wait(WITHIN_S)
        route.answer()
        wait_until(lambda: route.stream.closed == 1, WITHIN_S)
        assert route.stream.made == 0


def test_a_piece_that_cannot_be_made_ends_the_connection_without_the_last_chunk() -> None:
    route = Route(Numbers(9, fails_at=2))
    with served(route) as server:
        received = b""
        with connect(server, GET) as peer, contextlib.suppress(ConnectionError):
            while piece := peer.recv(1 << 20):
                received += piece
        assert not received.endswith(b"0\r\n\r\n")
        wait_until(lambda: route.stream.closed == 1, WITHIN_S)


def test_the_next_request_of_a_connection_waits_for_the_end() -> None:
    route = Route(Numbers(20))
    with served(route) as server:
        kept = GET.replace(b"connection: close\r\n", b"")
        received = read_all(connect(server, kept + GET.replace(b"/stream", b"/-/healthy")))
    first, end, second = received.partition(b"\r\n0\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200")
    assert end
    assert second.startswith(b"HTTP/1.1 200")
    assert b'{"alive":true,"reason":"",' in second


def test_a_route_may_take_longer_than_the_server_allows_others() -> None:
    route = Route(Numbers(1), answers=False, request_timeout_s=60.0)
    with served(route, HttpLimits(request_timeout_s=0.2)) as server, connect(server, GET) as peer:
        wait_until(lambda: bool(route.replies), WITHIN_S)
        assert not route.dropped.wait(0.6)
        route.answer()
        assert read_all(peer).endswith(b"0\r\n\r\n")


def test_a_route_may_take_less() -> None:
    closed = sample("tsdb_http_connections_closed_total", reason="request_timeout")
    route = Route(Numbers(1), answers=False, request_timeout_s=0.2)
    with served(route, HttpLimits(request_timeout_s=60.0)) as server, connect(server, GET):
        assert route.dropped.wait(WITHIN_S)
    assert sample("tsdb_http_connections_closed_total", reason="request_timeout") == closed + 1
