"""A request is handled with its whole body or refused, and no byte of a body is ever run as a request."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.counters import sample
from support.servers.certificates import Authority
from support.servers.logs import wait_until
from tsdb.model.defaults import HTTP_HEADER_BYTES_MAX, HTTP_URL_BYTES_MAX
from tsdb.model.errors import TsdbError
from tsdb.ops.auth import Tokens
from tsdb.ops.byte_budget import RequestBytes, Reserved
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.bodies import HttpAnswer, HttpHead, Reply
from tsdb.ops.http.connection import HEADER_FIELDS_MAX
from tsdb.ops.http.connections import LARGE_HEADERS_MAX, HttpLimits
from tsdb.ops.http.server import OpsServer, serve_ops
from tsdb.ops.tls import ServerTls

WITHIN_S = 60.0


@dataclass
class Echo:
    """A BodyRoute that keeps what it handles and answers with it. held: answers wait for `release`."""

    name: str = "/echo"
    bytes_max: int = 1 << 20
    is_open: bool = False
    request_timeout_s: float | None = None
    held: RequestBytes = field(default_factory=lambda: RequestBytes(16 << 20))
    handled: list[tuple[str, bytes]] = field(default_factory=list)
    gate: threading.Event | None = None

    def route(self, method: str, path: str) -> Echo | None:
        return self if path == "/echo" else None

    def authorization(self, head: HttpHead) -> str | None:
        return None

    def check(self, head: HttpHead) -> None:
        """Every request is accepted."""

    def allows_origin(self, origin: str) -> bool:
        return False

    def handle(self, head: HttpHead, body: bytes | bytearray, reserved: Reserved, reply: Reply) -> None:
        self.handled.append((head.method, bytes(body)))
        answer = HttpAnswer(200, b"<" + bytes(body) + b">")
        gate = self.gate
        if gate is None:
            reply(answer)
        else:
            threading.Thread(target=self._wait, args=(gate, reply, answer)).start()

    def _wait(self, gate: threading.Event, reply: Reply, answer: HttpAnswer) -> None:
        gate.wait(WITHIN_S)
        reply(answer)

    def refusal(self, head: HttpHead, error: TsdbError) -> HttpAnswer:
        return HttpAnswer(400, f"{error.reason}: {error.message}".encode())


@dataclass
class Served:
    server: OpsServer
    echo: Echo

    def connect(self, sent: bytes = b"") -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self.server.port), timeout=WITHIN_S)
        peer.sendall(sent)
        return peer

    def ask(self, *segments: bytes) -> bytes:
        """Everything that the server answers to the segments, which arrive one by one."""
        with self.connect() as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(ConnectionError):
                for number, segment in enumerate(segments):
                    if number:
                        threading.Event().wait(0.03)  # The pause makes the piece a separate segment.
                    peer.sendall(segment)
            return read_all(peer)


def read_all(peer: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := peer.recv(65_536):
            received += piece
    return received


@contextlib.contextmanager
def served(echo: Echo | None = None, **settings: Any) -> Iterator[Served]:
    echo = echo or Echo()
    with serve_ops("127.0.0.1", 0, Readiness, Liveness, bodies=echo, **settings) as server:
        yield Served(server, echo)


def statuses(answers: bytes) -> list[int]:
    """Statuses of the answers; those in bodies begin after `<`."""
    return [int(status) for status in re.findall(rb"(?<!<)HTTP/1\.1 (\d+)", answers) if status != b"100"]


H2C = (
    b"Connection: Upgrade, HTTP2-Settings\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n"
)
OFFERS = {
    "none": b"",
    "h2c": H2C,
    "websocket": b"Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n",
    "tls": b"Connection: upgrade\r\nUpgrade: TLS/1.0, HTTP/1.1\r\n",
    "two of each": b"Connection: Upgrade\r\nConnection: HTTP2-Settings\r\nUpgrade: h2c\r\nUpgrade: foo\r\n",
    "without Connection": b"Upgrade: h2c\r\n",
}
SMUGGLED = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nsmuggled"
LENGTH = b"Content-Length: %d\r\n\r\n" % len(SMUGGLED)
BODIES = {
    "length": (LENGTH + SMUGGLED,),
    "second segment": (LENGTH, SMUGGLED),
    "many segments": (LENGTH, *(SMUGGLED[at : at + 9] for at in range(0, len(SMUGGLED), 9))),
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED),),
    "chunks in segments": (
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"4\r\n%b\r\n" % SMUGGLED[:4],
        b"%x\r\n%b\r\n" % (len(SMUGGLED) - 4, SMUGGLED[4:]),
        b"0\r\n\r\n",
    ),
    "expected continue": (b"Expect: 100-continue\r\n" + LENGTH, SMUGGLED),
}
LAST = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
def test_a_body_of_an_upgrade_request_is_read(offer: bytes, body: tuple[bytes, ...]) -> None:
    first, *rest = body
    with served() as one:
        answers = one.ask(b"POST /echo HTTP/1.1\r\nHost: x\r\n" + offer + first, *rest, LAST)
    assert one.echo.handled == [("POST", SMUGGLED)]
    assert statuses(answers) == [200, 200]
    assert b"<" + SMUGGLED + b">" in answers


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
def test_pipelined_upgrade_requests_are_answered_in_order(offer: bytes) -> None:
    requests = [
        b"POST /echo HTTP/1.1\r\nHost: x\r\n%bContent-Length: 2\r\n\r\n%02d" % (offer, number) for number in range(30)
    ]
    with served() as one:
        answers = one.ask(b"".join(requests) + LAST)
    assert re.findall(rb"<(\d+)>", answers) == [b"%02d" % number for number in range(30)]
    assert statuses(answers)[30:] == [200]


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
def test_routes_without_a_body_ignore_an_offer_too(offer: bytes) -> None:
    with served() as one:
        request = b"%b HTTP/1.1\r\nHost: x\r\n" + offer
        body = b"Content-Length: %d\r\n\r\n%b" % (len(SMUGGLED), SMUGGLED)
        answers = one.ask(request % b"GET /-/healthy" + b"\r\n" + request % b"GET /" + body, LAST)
    assert statuses(answers) == [200, 200, 200]
    assert one.echo.handled == []


POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
UNCLEAR = {
    "two lengths": (400, POST + b"Content-Length: 3\r\nContent-Length: 60\r\n\r\nabc"),
    "the same length twice": (400, POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    "a list of lengths": (400, POST + b"Content-Length: 3, 3\r\n\r\nabc"),
    "a signed length": (400, POST + b"Content-Length: +3\r\n\r\nabc"),
    "a length in hexadecimal": (400, POST + b"Content-Length: 0x3\r\n\r\nabc"),
    "a length beyond 64 bits": (400, POST + b"Content-Length: 99999999999999999999\r\n\r\nabc"),
    "an empty length": (400, POST + b"Content-Length:\r\n\r\nabc"),
    "length and chunks": (400, POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    "chunks and length": (400, POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    "chunks twice": (
        400,
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
    "another coding": (501, POST + b"Transfer-Encoding: gzip\r\n\r\nabc"),
    "identity": (501, POST + b"Transfer-Encoding: identity\r\n\r\nabc"),
    "another coding within chunks": (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    "nearly chunked": (501, POST + b"Transfer-Encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    "chunked is not the last": (400, POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    "a blank before the colon": (400, POST + b"Content-Length : 3\r\n\r\nabc"),
    "a folded line": (400, POST + b"X: a\r\n b: c\r\nContent-Length: 3\r\n\r\nabc"),
    "a bare line feed": (400, POST + b"X: a\nContent-Length: 3\r\n\r\nabc"),
    "a bare carriage return": (400, POST + b"X: a\rContent-Length: 3\r\n\r\nabc"),
    "a zero byte": (400, POST + b"X: a\0\r\nContent-Length: 3\r\n\r\nabc"),
    "two hosts": (400, POST + b"Host: y\r\nContent-Length: 3\r\n\r\nabc"),
    "chunks by HTTP/1.0": (501, b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    "no length by HTTP/1.0": (411, b"POST /echo HTTP/1.0\r\n\r\nabc"),
    "HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "the version of HTTP/2": (505, b"POST /echo HTTP/2.0\r\nContent-Length: 3\r\n\r\nabc"),
    "no version": (505, b"POST /echo\r\n\r\n"),
    "an unknown version": (400, b"POST /echo HTTP/1.7\r\nContent-Length: 3\r\n\r\nabc"),
    "a tunnel": (405, b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a tunnel with a length": (405, b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"),
    "no HTTP": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
}


@pytest.mark.parametrize(("status", "request_"), UNCLEAR.values(), ids=UNCLEAR)
def test_a_request_without_a_clear_end_is_refused_and_nothing_behind_it_runs(status: int, request_: bytes) -> None:
    with served() as one:
        assert statuses(one.ask(request_ + SMUGGLED)) == [status]
        assert statuses(one.ask(request_, SMUGGLED)) == [status]
        assert statuses(one.ask(SMUGGLED + request_ + SMUGGLED)) == [200, status]
    assert one.echo.handled == [("POST", b"smuggled")]


BAD_CHUNKS = {
    "no number": b"z\r\nabc\r\n0\r\n\r\n",
    "negative": b"-3\r\nabc\r\n0\r\n\r\n",
    "with a prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "beyond 64 bits": b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "too short": b"2\r\nabc\r\n0\r\n\r\n",
    "a bare line feed": b"3\nabc\n0\n\n",
    "a blank": b"3 \r\nabc\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
def test_a_malformed_chunk_refuses_its_request_after_the_answers_before_it(chunks: bytes) -> None:
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
    with served() as one:
        assert statuses(one.ask(SMUGGLED + head + chunks + SMUGGLED)) == [200, 400]
        assert statuses(one.ask(head, chunks, SMUGGLED)) == [400]
    assert one.echo.handled == [("POST", b"smuggled")]


CUT = {
    "length": POST + b"Content-Length: 10\r\n\r\n12345",
    "chunk": POST + b"Transfer-Encoding: chunked\r\n\r\na\r\n12345",
    "last chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
    "trailer": POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\nx: y\r\n",
    "header": POST + b"Content-Length: 1",
    "offer": POST + H2C + b"Content-Length: 10\r\n\r\n12345",
}


@pytest.mark.parametrize("sent", CUT.values(), ids=CUT)
def test_a_body_that_is_cut_is_never_handled(sent: bytes) -> None:
    before = sample("tsdb_http_refused_total", reason="cut")
    with served() as one, one.connect(SMUGGLED + sent) as peer:
        peer.shutdown(socket.SHUT_WR)
        assert statuses(read_all(peer)) == [200, 400]
        with one.connect(sent) as peer:
            peer.shutdown(socket.SHUT_WR)
            assert statuses(read_all(peer)) == [400]
    assert one.echo.handled == [("POST", b"smuggled")]
    assert sample("tsdb_http_refused_total", reason="cut") == before + 2


def test_a_peer_that_sends_no_more_gets_its_answers() -> None:
    gate = threading.Event()
    with served(Echo(gate=gate)) as one, one.connect(SMUGGLED * 2) as peer:
        peer.shutdown(socket.SHUT_WR)
        wait_until(lambda: len(one.echo.handled) == 1, WITHIN_S)
        gate.set()
        assert statuses(read_all(peer)) == [200, 200]


@pytest.mark.parametrize("line", [b"HTTP/1.1\r\nConnection: close", b"HTTP/1.0"])
@pytest.mark.parametrize("behind", [SMUGGLED, b"\r\n\r\n" + SMUGGLED, b"no HTTP\r\n\r\n"])
def test_nothing_behind_the_last_request_of_a_connection_runs(line: bytes, behind: bytes) -> None:
    request = b"POST /echo %b\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" % line
    with served() as one:
        assert statuses(one.ask(request + behind)) == [200]
        assert statuses(one.ask(request, behind)) == [200]
    assert one.echo.handled == [("POST", b"abc")] * 2


def test_a_continue_is_not_sent_to_a_peer_of_http_1_0() -> None:
    head = b"POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    with served() as one:
        answers = one.ask(head, b"abc")
    assert answers.startswith(b"HTTP/1.1 200")


def test_a_trailer_is_no_header() -> None:
    chunks = b"Transfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer good\r\n\r\n"
    with served(tokens=Tokens(text="good")) as one:
        assert statuses(one.ask(b"GET / HTTP/1.1\r\nHost: x\r\n" + chunks + LAST)) == [401, 200]


def test_a_body_cut_under_tls_is_never_handled(tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path)
    trust = ssl.create_default_context(cafile=str(authority.ca_file))
    with served(tls=ServerTls(*authority.issue("server"))) as one:
        for sent in CUT.values():
            with trust.wrap_socket(one.connect(), server_hostname="127.0.0.1") as peer:
                peer.sendall(sent)
                with contextlib.suppress(OSError):
                    peer.unwrap()
        with trust.wrap_socket(one.connect(), server_hostname="127.0.0.1") as peer:
            peer.sendall(POST + H2C + b"Connection: close\r\n" + LENGTH + SMUGGLED)
            assert statuses(read_all(peer)) == [200]
    assert one.echo.handled == [("POST", SMUGGLED)]


ECHO = b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
TARGETS = ("//echo", "///echo", "http://x:1//echo", "http://x:1/echo", "//echo?a=//b/", "//%65cho")


@pytest.mark.parametrize("target", TARGETS)
def test_doubled_slashes_lead_to_the_same_route(target: str) -> None:
    with served() as one:
        assert statuses(one.ask(ECHO % target.encode())) == [200]
        probe = ECHO % target.replace("/%65cho", "/echo").replace("/echo", "/-//ready").encode()
        assert statuses(one.ask(probe)) == [200]
    assert one.echo.handled == [("GET", b"")]


@pytest.mark.parametrize(
    "fields",
    [
        b"",
        b"X: " + b"x" * 20_000 + b"\r\n",
        b"".join(b"X-%d: %b\r\n" % (number, b"x" * 90) for number in range(200)),
        b"X: " + b"x" * (HTTP_HEADER_BYTES_MAX - 100) + b"\r\n",
    ],
    ids=["none", "one of 20 kB", "200 fields", "the limit"],
)
@pytest.mark.parametrize("url_bytes", [10, 48_000, HTTP_URL_BYTES_MAX - 20])
def test_large_urls_and_headers_are_answered(url_bytes: int, fields: bytes) -> None:
    request = b"GET /echo?q=%b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (b"x" * url_bytes, fields)
    with served() as one:
        assert statuses(one.ask(request + LAST)) == [200, 200]
        assert statuses(one.ask(request.replace(b"/echo", b"/") + LAST)) == [200, 200]
        half = len(request) // 2
        assert statuses(one.ask(request[:half], request[half:], LAST)) == [200, 200]


TOO_LARGE = {
    "URL": (
        414,
        "url_too_long",
        b"http_url_bytes_max",
        b"GET /echo?q=%b HTTP/1.1\r\n\r\n" % (b"x" * HTTP_URL_BYTES_MAX),
    ),
    "URL without end": (414, "url_too_long", b"http_url_bytes_max", b"GET /echo?q=" + b"x" * (2 << 20)),
    "a field": (
        431,
        "header_too_large",
        b"http_header_bytes_max",
        b"GET / HTTP/1.1\r\nX: %b\r\n\r\n" % (b"x" * HTTP_HEADER_BYTES_MAX),
    ),
    "a field without end": (
        431,
        "header_too_large",
        b"http_header_bytes_max",
        b"GET / HTTP/1.1\r\nX: " + b"x" * (2 << 20),
    ),
    "a name without end": (431, "header_too_large", b"http_header_bytes_max", b"GET / HTTP/1.1\r\n" + b"x" * (2 << 20)),
    "many fields": (
        431,
        "header_fields",
        b"1000 fields",
        b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * (HEADER_FIELDS_MAX + 1) + b"\r\n",
    ),
    "line ends without end": (431, "header_too_large", b"http_header_bytes_max", b"\r\n" * (1 << 20)),
}


@pytest.mark.parametrize(("status", "reason", "text", "sent"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_beyond_the_limit_the_refusal_names_it(status: int, reason: str, text: bytes, sent: bytes) -> None:
    before = sample("tsdb_http_refused_total", reason=reason)
    with served() as one:
        answer = one.ask(sent)
        assert statuses(answer) == [status]
        assert text in answer
        assert statuses(one.ask(SMUGGLED + sent)) == [200, status]
    assert sample("tsdb_http_refused_total", reason=reason) == before + 2


def test_the_limits_are_settings() -> None:
    with served(limits=HttpLimits(url_bytes_max=100, header_bytes_max=50)) as one:
        assert statuses(one.ask(ECHO % (b"/echo?" + b"x" * 100))) == [414]
        assert statuses(one.ask(ECHO.replace(b"Host", b"X: %b\r\nHost" % (b"x" * 50)) % b"/echo")) == [431]


def test_large_headers_are_bounded_in_number_and_the_slowest_makes_room() -> None:
    large = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000
    with served() as one, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(one.connect(large)) for _ in range(LARGE_HEADERS_MAX)]

        def is_made() -> bool:
            """Whether a header more has closed the slowest. It does once all of them have arrived."""
            assert statuses(one.ask(large + b"\r\nConnection: close\r\n\r\n")) == [200]
            return bool(select.select([slow[0]], [], [], 0)[0])

        wait_until(is_made)
        assert read_all(slow[0]) == b""
        slow[-1].sendall(b"\r\nConnection: close\r\n\r\n")
        assert statuses(read_all(slow[-1])) == [200]
