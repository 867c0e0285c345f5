"""HttpConnection: one connection of the HTTP server, uvicorn's with a timer for each wait and with body routes.

httptools parses, because a small write must cost little. It has no limit for a header, so the connection counts the
bytes that bring no header, no body and no end of a message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tsdb.model.errors import TsdbError
from tsdb.ops.auth import Tokens
from tsdb.ops.http.bodies import BodyRoute, BodyRoutes, HttpAnswer, HttpHead
from tsdb.ops.http.body import Answers, BodyExchange
from tsdb.ops.http.connections import Abortable, Connections
from tsdb.ops.metrics import counter

HEADER_BYTES_MAX = 16 << 10

requests_total = counter("tsdb_http_requests_total", "Answered requests of the ops HTTP server.", ("route", "code"))


class HttpConnection(HttpToolsProtocol):
    """Runs on the event loop's thread."""

    def __init__(
        self,
        connections: Connections,
        bodies: BodyRoutes,
        tokens: Tokens | None,
        answers: Answers,
        handshake: Abortable,
        **uvicorn: Any,
    ) -> None:
        super().__init__(**uvicorn)
        self._table = connections
        self._bodies = bodies
        self._tokens = tokens
        self._answers = answers
        self._handshake = handshake
        self._timer: asyncio.TimerHandle | None = None
        self._between_requests = False
        self._header_bytes = 0
        self._idle_bytes = 0  # Received since the last header, piece of a body, or end of a message.
        self._receiving: BodyExchange | None = None
        self._unanswered: deque[BodyExchange] = deque()  # In their order. uvicorn's `cycle` is the last request alone.
        self._body_timer = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start the timer of the first header."""
        super().connection_made(transport)
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
        if self._between_requests:
            self._between_requests = False
            self._expect("header_timeout", self._table.limits.header_timeout_s)
        before = self.cycle
        self._idle_bytes += len(data)
        super().data_received(data)
        if self._idle_bytes > HEADER_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")
        if self.cycle is not before and not self.cycle.response_complete:
            self._begin()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_header(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        """A header is whole: begin its request, or queue it behind the one before it."""
        self._idle_bytes = 0
        self._receiving = None
        head = self._head()
        route = self._bodies.route(head.method, head.path)
        if route is None:
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
        self._idle_bytes = 0
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
        before = len(self.pipeline)
        self._body_timer = False
        super().on_response_complete()
        if len(self.pipeline) < before:  # A pipelined request has begun.
            self._begin()
        elif not self.transport.is_closing():
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

    def _head(self) -> HttpHead:
        url = httptools.parse_url(self.url)
        path = (url.path or b"/").decode("ascii", "replace")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}
        return HttpHead(
            self.parser.get_method().decode("ascii"),
            unquote(path) if "%" in path else path,
            (url.query or b"").decode("ascii", "replace"),
            headers,
            _address(self.client),
        )

    def _begin_exchange(self, route: BodyRoute, head: HttpHead) -> None:
        before: Any = self.cycle
        length = head.headers.get("content-length", "0")
        exchange = BodyExchange(
            route,
            head,
            None if "transfer-encoding" in head.headers else int(length),
            self.transport,
            self._answers,
            keep_alive=self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive(),
            chunks=self.parser.get_http_version() != "1.0",
            is_writable=lambda: not self.flow.write_paused,
            on_answered=partial(self._answered, route.name),
            date=lambda: self.server_state.default_headers,
        )
        cycle: Any = exchange  # In place of uvicorn's.
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
        if isinstance(cycle, BodyExchange):
            cycle.start()
        else:
            super()._start_asgi_task(cycle, app)

    def _refusal(self, route: BodyRoute, head: HttpHead) -> TsdbError | None:
        try:
            if self._tokens and not route.is_open:
                self._tokens.check(route.authorization(head), server="http")
            route.check(head)
        except TsdbError as error:
            return error
        return None

    def _answered(self, route: str, answer: HttpAnswer) -> None:
        requests_total.labels(route, str(answer.status)).inc()
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

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES_MAX:
            raise ValueError("the header is too large")  # httptools wraps it; the answer is 400.

    def _expect(self, reason: str, within_s: float) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(within_s, self._table.overdue, self, reason)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _address(client: tuple[str, int] | None) -> str:
    """HOST:PORT of a peer. uvicorn has None for a socket without addresses."""
    if client is None:
        return ""
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
