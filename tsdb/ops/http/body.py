"""BodyExchange: handles one request of a body route on a connection, from its header to its answer.

It stands where uvicorn has its RequestResponseCycle, so that pipelined requests of both kinds keep their order. Only
the event loop's thread uses it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from tsdb.model.errors import InvalidRequest, TsdbError
from tsdb.ops.byte_budget import Reserved
from tsdb.ops.http.bodies import REQUEST_BYTES, STEP_BYTES, BodyRoute, HttpAnswer, HttpHead
from tsdb.ops.logs import get_logger

log = get_logger(__name__)

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
BODY_CUT = "cut"
DISCARD_BYTES_MAX = 64 << 20  # Bytes of a refused body that the peer still sends; then its connection is closed.
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_STATUS_LINES[499] = "HTTP/1.1 499 Client Closed Request\r\n"  # A status of nginx, for a query that was cancelled.


class Answers:
    """Passes answers to the event loop, on whose thread it is made. Answers that come together need one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._waiting: deque[tuple[BodyExchange, HttpAnswer | _Pieces]] = deque()
        self._woken = False

    def put(self, exchange: BodyExchange, answer: HttpAnswer | _Pieces) -> None:
        """Send it soon. Any thread may call it."""
        self._waiting.append((exchange, answer))
        # Append first, because `_send` takes everything that is queued after it has reset the mark. Two threads may
        # both wake it.
        if self._woken:
            return
        self._woken = True
        try:
            # The loop's own thread needs no system call to wake it.
            own = threading.get_ident() == self._thread
            (self._loop.call_soon if own else self._loop.call_soon_threadsafe)(self._send)
        except RuntimeError:
            log.warning("an answer came after the HTTP server had ended")

    def _send(self) -> None:
        self._woken = False
        # Answers that come meanwhile wait for the next turn: pieces of a stream may come as fast as they are sent, and
        # the loop has other work.
        for _ in range(len(self._waiting)):
            exchange, answer = self._waiting.popleft()
            try:
                if isinstance(answer, HttpAnswer):
                    exchange.answer(answer)
                else:
                    exchange.deliver(answer)
            except Exception as error:
                log.error("http answer failed", exc_info=error)
                exchange.abort()


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Pieces of a stream."""

    pieces: Sequence[bytes]
    is_last: bool


class _Reply:
    """The Reply of an exchange."""

    def __init__(self, exchange: BodyExchange, answers: Answers) -> None:
        self._exchange = exchange
        self._answers = answers

    def __call__(self, answer: HttpAnswer) -> None:
        self._answers.put(self._exchange, answer)

    def on_drop(self, callback: Callable[[], None]) -> None:
        self._exchange.dropped = callback


class ExchangeConnection(Protocol):
    """The connection of an exchange, as the exchange sees it."""

    transport: asyncio.Transport
    answers: Answers

    @property
    def date(self) -> list[tuple[bytes, bytes]]:
        """The header of that name, which uvicorn renews each second."""

    def is_writable(self) -> bool:
        """Whether the transport takes more."""

    def answered(self, route: BodyRoute, answer: HttpAnswer) -> None:
        """The connection takes the next request."""

    def end(self, *, arriving: bool) -> None:
        """Close after the last answer. arriving: whether a part of the body may still come."""


class _NoEvent:
    """uvicorn sets the event of a request when its connection is lost. Nothing here waits for it."""

    def set(self) -> None:
        pass


_NO_EVENT = _NoEvent()


class BodyExchange:
    """body_bytes: the declared length; None for a chunked body. chunks: whether the peer knows HTTP/1.1, and so
    chunks."""

    message_event = _NO_EVENT

    def __init__(
        self,
        route: BodyRoute,
        head: HttpHead,
        body_bytes: int | None,
        connection: ExchangeConnection,
        *,
        keep_alive: bool,
        chunks: bool,
    ) -> None:
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = keep_alive
        self.request_timeout_s = route.request_timeout_s
        self.dropped: Callable[[], None] = _no_effect
        self._route = route
        self._head = head
        self._body_bytes = body_bytes
        self._connection = connection
        self._transport = connection.transport
        self._answers = connection.answers
        self._chunks = chunks
        self._reserved = Reserved(route.held)
        self._body = bytearray()
        self._whole = False
        self._started = False
        self._handled = False
        self._discarded = 0
        self._early: HttpAnswer | None = None  # The answer of a request whose turn has not come.
        self._streamed: HttpAnswer | None = None  # The answer whose stream is being sent.
        self._making = False  # The stream makes pieces.

    def open(self, refusal: TsdbError | None, *, expects_continue: bool) -> None:
        """The header is here. Reserve the first bytes of the body, or refuse the request."""
        try:
            if refusal is not None:
                raise refusal
            if (self._body_bytes or 0) > self._route.bytes_max:
                raise too_large(self._body_bytes or 0, self._route.bytes_max)
            step = STEP_BYTES if self._body_bytes is None else min(self._body_bytes, STEP_BYTES)
            self._reserved.set(REQUEST_BYTES + step)
        except TsdbError as error:
            self._refuse(error)
            return
        if expects_continue and self._body_bytes != 0:
            self._transport.write(CONTINUE)

    def start(self) -> None:
        """The requests before it on the connection are answered."""
        self._started = True
        if self._early is not None:
            self.answer(self._early)
        elif self._whole:
            self._handle()

    def receive(self, data: bytes) -> None:
        """Add a piece of the body."""
        if self.response_complete or self._early is not None:
            self._discard(len(data))
            return
        size = len(self._body) + len(data)
        try:
            if size > self._route.bytes_max:
                raise too_large(size, self._route.bytes_max)
            if REQUEST_BYTES + size > self._reserved.size:
                limit = self._route.bytes_max if self._body_bytes is None else self._body_bytes
                self._reserved.set(REQUEST_BYTES + max(size, min(2 * size, limit)))
        except TsdbError as error:
            self._refuse(error)
            return
        self._body += data

    def end(self) -> None:
        """The message has ended. Its body is whole if it has the declared length."""
        self._whole = True
        if self.response_complete or self._early is not None:
            return
        if self._body_bytes is not None and len(self._body) != self._body_bytes:
            self.cut(InvalidRequest(f"{len(self._body)} of {self._body_bytes} bytes of the body came", reason=BODY_CUT))
        elif self._started:
            self._handle()

    def cut(self, error: TsdbError) -> None:
        """The rest of the body does not come: refuse the request, if it has no answer, and end the connection."""
        self.keep_alive = False
        if self.response_complete:
            self._connection.end(arriving=True)
        elif self._early is None:
            self._refuse(error)

    @property
    def outlives_peer(self) -> bool:
        """Whether its answer is made though the peer sends no more, and may be gone."""
        return self._early is not None or (self._whole and self.dropped is _no_effect)

    def drop(self) -> None:
        """The connection is lost."""
        self.disconnected = True
        if not self._handled:  # Otherwise its answer releases the memory, because a thread may still use it.
            self._release()
        elif not self.response_complete:
            self.dropped()
            self._end_stream()

    def answer(self, answer: HttpAnswer) -> None:
        """Send the answer, unless the peer is gone or has an answer already."""
        if self._handled:
            self._release()
            self.dropped = _no_effect
        if self.disconnected or self.response_complete:
            if answer.stream is not None:
                answer.stream.close()
            return
        if not self._started:
            self._early = answer
            return
        self._transport.write(self._bytes_of(answer))
        if answer.stream is None or self._head.method == "HEAD":
            if answer.stream is not None:
                answer.stream.close()
            self._complete(answer)
            return
        self._streamed = answer
        self.make_more()
        self._send_chunk((answer.body,))

    def make_more(self) -> None:
        """Ask the stream for more, if the transport takes it."""
        answer = self._streamed
        if answer is not None and answer.stream is not None and not self._making and self._connection.is_writable():
            self._making = True
            answer.stream.make(lambda pieces, is_last: self._answers.put(self, _Pieces(pieces, is_last)))

    def deliver(self, made: _Pieces) -> None:
        """Send pieces of the stream."""
        self._making = False
        answer = self._streamed
        if answer is None:  # The peer has left.
            return
        if self._transport.is_closing():  # uvicorn is about to report the connection as lost.
            self._end_stream()
            return
        if not made.pieces and not made.is_last:
            self.abort()
            return
        if not made.is_last:
            self.make_more()  # Call this first, so that a thread makes the next pieces while these are sent.
        self._send_chunk(made.pieces, end=LAST_CHUNK if made.is_last and self._chunks else b"")
        if made.is_last:
            self._end_stream()
            self._complete(answer)

    def abort(self) -> None:
        """Close the connection without an answer."""
        self._transport.abort()

    def refuse(self, error: TsdbError) -> None:
        """Answer before the body is whole."""
        if not self._handled:
            self._refuse(error)

    def _handle(self) -> None:
        if self._early is not None:
            return
        self._handled = True
        body, self._body = self._body, bytearray()
        self._route.handle(self._head, body, self._reserved, _Reply(self, self._answers))

    def _send_chunk(self, pieces: Sequence[bytes], end: bytes = b"") -> None:
        size = sum(map(len, pieces))
        if size and self._chunks:
            pieces = (b"%x\r\n" % size, *pieces, b"\r\n")
        self._transport.write(b"".join((*pieces, end)))

    def _end_stream(self) -> None:
        answer, self._streamed = self._streamed, None
        if answer is not None and answer.stream is not None:
            answer.stream.close()

    def _complete(self, answer: HttpAnswer) -> None:
        self.response_complete = True
        if not self.keep_alive:
            self._connection.end(arriving=not self._whole)
        self._connection.answered(self._route, answer)

    def _refuse(self, error: TsdbError) -> None:
        self._release()
        self.answer(self._route.refusal(self._head, error))

    def _release(self) -> None:
        self._body = bytearray()
        self._reserved.give_back()

    def _discard(self, size: int) -> None:
        # The peer may read its answer only after it has sent everything; a closed socket would lose the answer.
        self._discarded += size
        if self._discarded > DISCARD_BYTES_MAX:
            self._transport.close()

    def _bytes_of(self, answer: HttpAnswer) -> bytes:
        lines = [_STATUS_LINES[answer.status]]
        for of_date, value in self._connection.date:
            lines.append(f"{of_date.decode()}: {value.decode()}\r\n")
        if answer.content_type:
            lines.append(f"content-type: {answer.content_type}\r\n")
        for name, text in answer.headers:
            lines.append(f"{name}: {text}\r\n")
        if answer.stream is not None:
            if self._chunks:
                lines.append("transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False  # The end of the connection is the end of the body.
        elif answer.status != HTTPStatus.NO_CONTENT:
            lines.append(f"content-length: {len(answer.body)}\r\n")
        if not self.keep_alive:
            lines.append("connection: close\r\n")
        lines.append("\r\n")
        header = "".join(lines).encode("latin-1", "replace")
        return header if self._head.method == "HEAD" or answer.stream is not None else header + answer.body


def _no_effect() -> None:
    """For a route that does not ask for the end of its peer."""


def too_large(size: int, limit: int) -> InvalidRequest:
    """The error of a body over the limit of its route."""
    return InvalidRequest(
        f"the body has {size} bytes or more; limit is {limit}: split it",
        reason="message_too_large",
        got=size,
        limit=limit,
    )
