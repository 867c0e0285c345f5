"""HttpConnection: extends a connection of uvicorn with a timer for each wait and with body routes.

httptools parses, because a small write must cost little. Three rules are ours. An offer of another protocol (`Upgrade`)
is ignored and the body of its request is read, as RFC 9110, section 7.8 allows. A request of which a part is missing or
malformed is never handled. After the last request of a connection no further bytes are parsed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tsdb.model.errors import InvalidRequest, TsdbError, Unauthenticated
from tsdb.ops.auth import Tokens, log_failure
from tsdb.ops.http.bodies import BodyRoute, BodyRoutes, HttpAnswer, HttpHead
from tsdb.ops.http.body import BODY_CUT, DISCARD_BYTES_MAX, Answers, BodyExchange
from tsdb.ops.http.connections import SMALL_HEADER_BYTES, Abortable, Connections
from tsdb.ops.http.framing import FramingError, check_framing, header_without_offer, malformed, target_of
from tsdb.ops.http.sites import Sites
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import adder, counter

__all__ = ["HttpConnection", "requests_total"]

HEADER_FIELDS_MAX = 1000  # Each takes some 300 bytes beside its text.
LINGER_S = 2.0  # A peer that still sends has this time to read its refusal. A closed socket would lose the refusal.

requests_total = counter("tsdb_http_requests_total", "Answered requests of the ops HTTP server.", ("route", "code"))

log = get_logger(__name__)


@lru_cache(256)  # Routes and codes of a process are few. A look-up in the metric takes five calls.
def _count_answer(route: str, status: int) -> Callable[[float], None]:
    return adder(requests_total.labels(route, str(status)))


class _Ended(Exception):
    """State of a connection after its last request: more bytes are refused."""


class _LastAnswer:
    """A refusal that waits for the answers before it. It replaces uvicorn's cycle."""

    def __init__(self, start: Callable[[], None]) -> None:
        self.start = start
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = False
        self.message_event = asyncio.Event()


class HttpConnection(HttpToolsProtocol):
    """Runs on the event loop's thread. sites: None for a server with tokens."""

    def __init__(
        self,
        connections: Connections,
        bodies: BodyRoutes,
        tokens: Tokens | None,
        answers: Answers,
        handshake: Abortable,
        *,
        sites: Sites | None = None,
        **uvicorn: Any,
    ) -> None:
        super().__init__(**uvicorn)
        self._table = connections
        self._bodies = bodies
        self._tokens = tokens
        self.answers = answers
        self._handshake = handshake
        self._sites = sites
        self._peer = ""
        # The timer fires at _due_at, or before it and is then set again.
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._due_reason = ""
        self._between_requests = False
        self._in_message = False  # Time from the first byte of a request to its last one.
        self._in_header = False
        self._upgrading = False  # The parser has stopped at an offer of another protocol.
        self._closes = False  # The current request is the last one.
        self._ended = False  # Nothing more is parsed.
        self._lingering = False  # The last answer is sent; the peer may still send.
        self._header_bytes = 0
        self._header_fields = 0
        # Bytes received since the last header, the last piece of a body, or the last end of a message.
        self._idle_bytes = 0
        self._dropped_bytes = 0
        self._receiving: BodyExchange | None = None
        # Exchanges in their order. uvicorn's `cycle` is only the last request.
        self._unanswered: deque[BodyExchange] = deque()
        self._body_timer = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start the timer of the first header."""
        super().connection_made(transport)
        self._peer = host_port(self.client)
        self._table.remove(self._handshake)
        self._table.wait(self)
        self._expect("header_timeout", self._table.limits.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        for exchange in self._unanswered:
            exchange.drop()
        self._receiving = None
        super().connection_lost(exc)
        self._cancel_timer()
        self._table.remove(self)

    def data_received(self, data: bytes) -> None:
        """The first byte of a header starts its timer; further bytes do not restart it."""
        if self._ended:
            self._drop(len(data))
            return
        starts, self._between_requests = self._between_requests, False
        before = self.cycle
        self._idle_bytes += len(data)
        self._feed(data)
        if self._idle_bytes and not self._ended:
            self._check_idle_bytes()
        if self._lingering:
            return
        if self.cycle is not before:
            if not self.cycle.response_complete:
                self._begin()
        elif starts and not self._ended:
            self._expect("header_timeout", self._table.limits.header_timeout_s)

    def eof_received(self) -> bool:  # type: ignore[override]  # as in asyncio
        """The peer sends no more. It gets the answers to its whole requests, as far as they do not end with it."""
        if not self._ended and self._in_message:
            self._refuse(FramingError(HTTPStatus.BAD_REQUEST, BODY_CUT, "the connection ended within this request"))
        self._ended = True
        cycle = self.cycle
        is_answered = cycle is None or cycle.response_complete
        # asyncio cannot keep one direction of TLS open. A query ends with its peer, as in Go's server, because the peer
        # may be gone.
        if is_answered or self.scheme == "https" or not all(one.outlives_peer for one in self._unanswered):
            return False
        cycle.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        if self._closes:
            raise _Ended
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._in_message = self._in_header = True
        self._header_bytes = self._header_fields = 0

    def on_url(self, url: bytes) -> None:
        limit = self._table.limits.url_bytes_max
        if len(self.url) + len(url) > limit:
            raise FramingError(
                HTTPStatus.REQUEST_URI_TOO_LONG,
                "url_too_long",
                f"the URL has over {limit} bytes, the limit http_url_bytes_max: send parameters in the body of a POST",
            )
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called for trailers too, which change nothing. It replaces uvicorn's, for it comes for each field."""
        self._header_bytes += len(name) + len(value) + 4
        self._header_fields += 1
        if self._header_bytes > self._table.limits.header_bytes_max:
            raise self._header_too_large()
        if self._header_fields > HEADER_FIELDS_MAX:
            text = f"the header has over {HEADER_FIELDS_MAX} fields"
            raise FramingError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "header_fields", text)
        if self._in_header:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """A header is whole: begin its request, or queue it behind the one before it."""
        method, version = self.parser.get_method().decode("ascii"), self.parser.get_http_version()
        if self.parser.should_upgrade() and method != "CONNECT":
            self._upgrading = True
            return
        self.url = target_of(method, self.url)
        head = self._head(method)
        check_framing(head, version, self.headers)
        if self._header_bytes + len(self.url) > SMALL_HEADER_BYTES:
            self._reserve_large_header()
        self._idle_bytes = 0
        self._in_header = False
        self._closes = version == "1.0" or not self.parser.should_keep_alive()
        self.expect_100_continue = self.expect_100_continue and version != "1.0"
        self._receiving = None
        route = self._bodies.route(head.method, head.path)
        if route is None:
            # uvicorn makes the scope at the begin of each message; only its own requests need one.
            url, headers, expects_continue = self.url, self.headers, self.expect_100_continue
            super().on_message_begin()
            self.url, self.expect_100_continue = url, expects_continue
            self.headers += headers
            super().on_headers_complete()
        else:
            self._begin_exchange(route, head)

    def on_body(self, body: bytes) -> None:
        self._idle_bytes = 0
        if self._receiving is None:
            super().on_body(body)
        else:
            self._receiving.receive(body)

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
        self._idle_bytes = 0
        self._in_message = False
        if self._receiving is None:
            super().on_message_complete()
            return
        receiving, self._receiving = self._receiving, None
        receiving.end()
        if self._body_timer:
            self._body_timer = False
            self._expect_answer()

    def on_response_complete(self) -> None:
        """The transport has the whole answer; the peer may not have received it yet."""
        if self._lingering:
            return
        self._body_timer = False
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            if not self._lingering and not self.transport.is_closing():
                self._begin()
        else:  # The timer below takes the place of uvicorn's.
            self._between_requests = True
            self._table.wait(self)
            self._expect("idle_timeout", self._table.limits.idle_timeout_s)

    def resume_writing(self) -> None:
        """The transport has sent most of what it had."""
        super().resume_writing()
        if self._unanswered:
            self._unanswered[0].make_more()

    def abort(self) -> None:
        """Close without sending the rest: the peer may not read."""
        self.transport.abort()

    def _feed(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while (stopped_at := self._parse(rest)) is not None:
                rest = rest[stopped_at:]
                self._parse_without_offer()
        except httptools.HttpParserError as error:
            self._fail(error)

    def _parse(self, data: memoryview) -> int | None:
        """Parse the bytes. Returns the position at which the parser stopped at an offer of another protocol."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            return int(stop.args[0])
        return None

    def _parse_without_offer(self) -> None:
        """Parse the current header again, without its offer: httptools would skip the body."""
        self._upgrading = False
        version = self.parser.get_http_version()
        header = header_without_offer(self.parser.get_method(), self.url, version, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        # uvicorn sets this too; `_Ended` replaces its state.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(header)

    def _head(self, method: str) -> HttpHead:
        url = httptools.parse_url(self.url)
        path = (url.path or b"/").decode("ascii", "replace")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}
        return HttpHead(
            method,
            unquote(path) if "%" in path else path,
            (url.query or b"").decode("ascii", "replace"),
            headers,
            self._peer,
        )

    def _begin_exchange(self, route: BodyRoute, head: HttpHead) -> None:
        before: Any = self.cycle
        length = head.headers.get("content-length", "0")
        exchange = BodyExchange(
            route,
            head,
            None if "transfer-encoding" in head.headers else int(length),
            self,
            keep_alive=not self._closes,
            chunks=self.parser.get_http_version() != "1.0",
        )
        cycle: Any = exchange  # Replaces uvicorn's cycle.
        self.cycle = cycle
        self._receiving = exchange
        self._unanswered.append(exchange)
        exchange.open(self._refusal(route, head), expects_continue=self.expect_100_continue)
        if before is None or before.response_complete:
            exchange.start()
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if isinstance(cycle, BodyExchange | _LastAnswer):
            cycle.start()
        else:
            super()._start_asgi_task(cycle, app)

    def _refusal(self, route: BodyRoute, head: HttpHead) -> TsdbError | None:
        try:
            if self._tokens and not route.is_open:
                try:
                    self._tokens.check(route.authorization(head), server="http")
                except Unauthenticated as error:
                    log_failure(error, "http", head.peer)
                    raise
            route.check(head)
            if self._sites is not None and not route.is_open:
                self._sites.check(head.method, head.headers, route.allows_origin)
        except TsdbError as error:
            return error
        return None

    @property
    def date(self) -> list[tuple[bytes, bytes]]:
        return self.server_state.default_headers

    def is_writable(self) -> bool:
        return not self.flow.write_paused

    def answered(self, route: BodyRoute, answer: HttpAnswer) -> None:
        """Count the answer, and go on with the next request."""
        _count_answer(route.name, answer.status)(1)
        self._unanswered.popleft()
        self.on_response_complete()

    def _begin(self) -> None:
        self._table.run(self)
        receiving = self._receiving
        self._body_timer = receiving is not None and not receiving.response_complete
        if self._body_timer:
            self._expect("body_timeout", self._table.limits.body_timeout_s)
        else:
            self._expect_answer()

    def _expect_answer(self) -> None:
        cycle: Any = self.cycle
        of_route = cycle.request_timeout_s if isinstance(cycle, BodyExchange) else None
        self._expect("request_timeout", of_route or self._table.limits.request_timeout_s)

    def _fail(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__  # The cause is the exception of a callback.
        if isinstance(cause, _Ended) or (self._closes and not self._in_message):
            self._ended = True
        elif isinstance(cause, FramingError):
            self._refuse(cause)
        else:
            if cause is not None and not isinstance(cause, httptools.HttpParserError):
                log.error("http request failed", exc_info=cause)
            self._refuse(malformed(error))

    def _refuse(self, refusal: FramingError) -> None:
        """Refuse the request that is arriving, after the answers before it. Nothing behind it is parsed."""
        refusal.count()
        self._ended = True
        receiving, self._receiving = self._receiving, None
        cycle: Any = self.cycle
        if receiving is not None:
            receiving.cut(InvalidRequest(refusal.text, reason=refusal.reason))
            return
        is_body = self._in_message and not self._in_header
        is_queued = is_body and bool(self.pipeline) and self.pipeline[0][0] is cycle
        if is_queued:
            self.pipeline.popleft()
        elif is_body and cycle.response_started:
            self._linger()
            return
        elif is_body:
            cycle.disconnected = True
            cycle.message_event.set()
        last: Any = _LastAnswer(partial(self._answer_last, refusal))
        self.cycle = last
        if is_queued or not (is_body or cycle is None or cycle.response_complete):
            self.pipeline.appendleft((last, self.app))
        else:
            last.start()

    def _answer_last(self, refusal: FramingError) -> None:
        self.cycle.response_complete = True
        if self.transport.is_closing():
            return
        self.transport.write(refusal.encoded(self.server_state.default_headers))
        requests_total.labels("unknown", str(refusal.status.value)).inc()
        self._linger()

    def end(self, *, arriving: bool) -> None:
        """Close after the last answer. arriving: whether the peer may still send."""
        if arriving:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Close soon: a peer that still sends reads its answer only while the socket is open."""
        self._ended = self._lingering = True
        self._table.wait(self)
        self._cancel_timer()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self._timer = self.loop.call_later(LINGER_S, self.transport.close)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _drop(self, size: int) -> None:
        self._dropped_bytes += size
        if self._dropped_bytes > DISCARD_BYTES_MAX:
            self.transport.abort()

    def _check_idle_bytes(self) -> None:
        """httptools keeps the pieces of a field until the field is whole, so a limit of fields alone does not bound the
        memory.
        """
        of_url = len(self.url) if self._in_header else 0
        if self._idle_bytes - of_url > self._table.limits.header_bytes_max:
            self._refuse(self._header_too_large())
        elif self._idle_bytes > SMALL_HEADER_BYTES:
            try:
                self._reserve_large_header()
            except FramingError as refusal:
                self._refuse(refusal)

    def _header_too_large(self) -> FramingError:
        limit = self._table.limits.header_bytes_max
        text = f"the header has over {limit} bytes, the limit http_header_bytes_max"
        return FramingError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "header_too_large", text)

    def _reserve_large_header(self) -> None:
        if not self._table.reserve_large_header(self):
            raise FramingError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "large_headers",
                f"too many requests with over {SMALL_HEADER_BYTES} bytes of header are running: try again soon",
                "retry-after: 1",
            )

    def _expect(self, reason: str, within_s: float) -> None:
        """Close the connection with a reason unless the next call comes in time. A request has three such waits, so a
        timer that fires early stays: setting one costs some 20 us."""
        self._due_at, self._due_reason = self.loop.time() + within_s, reason
        if self._timer is None or self._timer.when() > self._due_at:
            self._cancel_timer()
            self._timer = self.loop.call_at(self._due_at, self._due)

    def _due(self) -> None:
        self._timer = None
        if self.loop.time() >= self._due_at:
            self._table.overdue(self, self._due_reason)
        else:
            self._timer = self.loop.call_at(self._due_at, self._due)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def host_port(client: tuple[str, int] | None) -> str:
    """HOST:PORT of a peer. uvicorn has None for a socket without addresses."""
    if client is None:
        return ""
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
