"""HttpReceiver: serves the write routes of a gateway. No thread waits for the log.

A small request goes from the socket to the append on the event loop's thread: waking another thread costs more than
its decoding. A large one, or one after a slow one, goes to a few threads, so that it delays no other connection. The
log's thread makes the answer. Memory is reserved from the header on; the pipeline takes over with its own reservation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from ingest.bucket_memory import MustWait
from ingest.http.expand import expand
from ingest.http.protocol import (
    LENGTH,
    METHOD,
    Decoded,
    MediaType,
    Outcome,
    WriteCall,
    WriteProtocol,
    encoding,
    media_type,
    parse_media_type,
    partial_error,
)
from ingest.pipeline import AcceptedWrite, Submit
from ingest.quota.token_quota import TokenQuota
from ingest.refusals import bounded_reason, count_refused_request
from ingest.rows import NO_ROWS
from tsdb.model import defaults
from tsdb.model.errors import InvalidRequest, TsdbError, Unavailable
from tsdb.model.family import Family
from tsdb.ops.byte_budget import RequestBytes, Reserved
from tsdb.ops.http.bodies import REQUEST_BYTES, HttpAnswer, HttpHead, Reply
from tsdb.ops.lifecycle import Component, Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import adder, counter
from tsdb.ops.queue_threads import QueueThreads

OPTIONS = "OPTIONS"
LENGTHS = frozenset({"content-length", "transfer-encoding"})
NOTHING = AcceptedWrite([], 0, {}, 0, [])  # The result of a request without samples.

# Bytes of a body that the event loop's thread handles, sent and expanded: some 150 series, 0.2 ms when they are known.
LOOP_BYTES_MAX = 16 << 10
# After a request of more CPU time, as one of many new series, the loop takes no other for REST_SHARE times as long.
SLOW_S = 0.005
REST_SHARE = 10
TOO_LARGE = "message_too_large"
FORMS_KEPT = 64  # Content types and encodings of a route that are parsed once; a header has at most 16 KiB.

_requests = counter("tsdb_ingest_protocol_requests_total", "Requests by protocol, refused ones too.", "protocol")
_samples = counter("tsdb_ingest_protocol_samples_total", "Accepted samples by protocol.", "protocol")
_refused = counter(
    "tsdb_ingest_protocol_refused_total",
    "Requests answered with an error, by protocol; of a partly refused one the reason of its first refused series.",
    ("protocol", "reason"),
)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReceiverLimits:
    """bytes_max: most bytes of a body, and of an expanded body. timeout_s: time from a request's arrival to the log's
    answer."""

    bytes_max: int = defaults.REQUEST_BYTES_MAX
    timeout_s: float = 30.0
    threads: int = defaults.WRITE_THREADS


class HttpReceiver(Component):
    """Serves the write protocols: a component that starts and stops, and the BodyRoutes of the server.

    families: receives the metadata of each request, and returns at once. tokens: checks a caller's token and rate
    before a body is read.
    """

    def __init__(
        self,
        protocols: Sequence[WriteProtocol],
        submit: Submit,
        families: Callable[[Sequence[Family]], None],
        held: RequestBytes,
        limits: ReceiverLimits,
        tokens: TokenQuota | None = None,
    ) -> None:
        # Bounded by the memory that its requests have reserved.
        self._threads: QueueThreads[_Work] = QueueThreads("http-write", limits.threads, self._work)
        self._submit = submit
        self._families = families
        self._limits = limits
        self._tokens = tokens
        self._closed = False
        self._loop_rests_until = 0.0  # Every request is queued until then, by the monotonic clock.
        self._routes: Mapping[str, _Route] = {
            path: _Route(path, protocol, held, limits.bytes_max, tokens, self._take)
            for protocol in protocols
            for path in protocol.paths
        }
        self._add_request = {protocol.name: adder(_requests.labels(protocol.name)) for protocol in protocols}
        self._add_samples = {protocol.name: adder(_samples.labels(protocol.name)) for protocol in protocols}

    def route(self, method: str, path: str) -> _Route | None:
        """See BodyRoutes. A wrong method is refused by `check`. A slash at the end of a configured URL is no reason for
        404, after which a sender drops its samples."""
        return self._routes.get(path) or self._routes.get(path.rstrip("/"))

    def start(self) -> None:
        """Start the threads; requests that came before are in the queue."""
        self._threads.start()

    def close(self) -> None:
        """Refuse further requests as draining; queued ones continue."""
        self._closed = True

    def join(self, timeout_s: float) -> bool:
        """Finish the queued requests and end the threads."""
        return self._threads.join(timeout_s)

    def _take(self, work: _Work) -> None:
        """Run a small request, queue another one. Called on the event loop's thread."""
        if self._closed:
            message = "the gateway is draining: send to another one"
            self._answer(work, Outcome(error=Unavailable(message, reason="draining", retry_after_s=1.0)))
            return
        self._add_request[work.protocol.name](1)
        if len(work.body) > LOOP_BYTES_MAX or work.arrived < self._loop_rests_until:
            self._threads.put(work)
            return
        began_s = time.thread_time()
        self._work(work, on_loop=True)
        took_s = time.thread_time() - began_s
        if took_s > SLOW_S:
            self._loop_rests_until = time.monotonic() + REST_SHARE * took_s

    def _work(self, work: _Work, *, on_loop: bool = False) -> None:
        reserved = work.reserved.size
        try:
            self._run(work, on_loop)
        except MustWait:
            work.reserved.set(reserved)
            self._threads.put(work)
        except TsdbError as error:
            count_refused_request(error, 0)
            self._answer(work, Outcome(error=error))
        except Exception as error:
            self._answer(work, Outcome(error=_internal(work, error)))

    def _run(self, work: _Work, on_loop: bool) -> None:
        """Raises MustWait on the loop for a request that is large when it is expanded, or has to wait."""
        call, bytes_max = work.call, self._limits.bytes_max
        try:
            expanded_max = min(bytes_max, LOOP_BYTES_MAX) if on_loop else bytes_max
            body = expand(call.encoding, work.body, expanded_max, work.reserved)
        except InvalidRequest as error:
            if on_loop and error.reason == TOO_LARGE:
                raise MustWait from None
            raise
        decoded = work.protocol.decode(
            WriteCall(call.head, call.media_type, call.encoding, body, bytes_max, work.reserved, may_wait=not on_loop)
        )
        work.body = b""
        del body
        if isinstance(decoded, HttpAnswer):
            work.reply(decoded)
            return
        if decoded.families:
            self._families(decoded.families)
        if self._tokens is not None:
            self._tokens.charge(work.protocol.authorization(work.call.head), decoded.rows.samples)
        if not len(decoded.rows):
            self._answer(work, Outcome(NOTHING, None, decoded))
            return
        try:
            future = self._submit(decoded.rows, True, Deadline(work.arrived + self._limits.timeout_s))
        except TsdbError as error:  # The pipeline has counted the error.
            self._answer(work, Outcome(error=error, decoded=decoded))
            return
        # The reservation of the pipeline counts from here on.
        work.reserved.set(REQUEST_BYTES)
        without_rows = Decoded(NO_ROWS, decoded.families, decoded.detail)
        future.add_done_callback(partial(self._written, work, without_rows))

    def _written(self, work: _Work, decoded: Decoded, future: Future[AcceptedWrite]) -> None:
        error = future.exception()
        if error is None:
            result = future.result()
            self._add_samples[work.protocol.name](result.samples)
            self._answer(work, Outcome(result, partial_error(result), decoded))
        else:
            known = error if isinstance(error, TsdbError) else _internal(work, error)
            self._answer(work, Outcome(error=known, decoded=decoded))

    def _answer(self, work: _Work, outcome: Outcome) -> None:
        if outcome.error is not None:
            _refused.labels(work.protocol.name, bounded_reason(outcome.error.reason)).inc()
        try:
            answer = work.protocol.answer(work.call, outcome)
        except Exception as error:  # The caller gets an answer even when a protocol has a bug.
            answer = HttpAnswer(500, _internal(work, error).message.encode())
        work.reply(answer)


def _internal(work: _Work, error: BaseException) -> TsdbError:
    log.error("http write failed", protocol=work.protocol.name, exc_info=error)
    return TsdbError("internal error; the server's log has the details")


@dataclass(slots=True)
class _Work:
    """One request of this handler."""

    protocol: WriteProtocol
    call: WriteCall  # Has no body.
    body: bytes | bytearray  # As it was sent, until it is expanded.
    reserved: Reserved
    reply: Reply
    arrived: float  # Time on the monotonic clock.


class _Route:
    """A path of a protocol, as the server sees it."""

    request_timeout_s = None
    is_open = False

    def __init__(
        self,
        name: str,
        protocol: WriteProtocol,
        held: RequestBytes,
        bytes_max: int,
        tokens: TokenQuota | None,
        put: Callable[[_Work], None],
    ) -> None:
        self.name = name
        self.bytes_max = bytes_max
        self.held = held
        self._protocol = protocol
        self._tokens = tokens
        self._put = put
        self._allow = ("allow", ", ".join(sorted({*protocol.methods, OPTIONS})))
        self.authorization = protocol.authorization
        self._form = lru_cache(FORMS_KEPT)(self._form_of)

    def _form_of(self, content_type: str, content_encoding: str) -> tuple[MediaType, str]:
        return media_type(self._protocol, content_type), encoding(self._protocol, content_encoding)

    def check(self, head: HttpHead) -> None:
        """Raises InvalidRequest (method_not_allowed, length_required, unsupported_media_type, unsupported_encoding; a
        token with a rate of 0), Overloaded (a token over its rate)."""
        if head.method == OPTIONS:
            return
        if head.method not in self._protocol.methods:
            accepted = ", ".join(sorted(self._protocol.methods))
            raise InvalidRequest(f"method {head.method} is not accepted here; send {accepted}", reason=METHOD)
        if head.method == "POST" and head.headers.keys().isdisjoint(LENGTHS):
            raise InvalidRequest("a write needs Content-Length or chunks: its body has no end", reason=LENGTH)
        self._form(head.headers.get("content-type", ""), head.headers.get("content-encoding", ""))
        if self._tokens is not None:
            self._tokens.check(self._protocol.authorization(head))

    def allows_origin(self, origin: str) -> bool:
        """No web page of another origin writes."""
        return False

    def handle(self, head: HttpHead, body: bytes | bytearray, reserved: Reserved, reply: Reply) -> None:
        """Queue the request for the threads."""
        if head.method == OPTIONS:
            reply(HttpAnswer(204, content_type="", headers=(self._allow,)))
            return
        kind, coding = self._form(head.headers.get("content-type", ""), head.headers.get("content-encoding", ""))
        self._put(_Work(self._protocol, WriteCall(head, kind, coding), body, reserved, reply, time.monotonic()))

    def refusal(self, head: HttpHead, error: TsdbError) -> HttpAnswer:
        """Count a request that was refused before its body, and answer it in the form of its protocol."""
        _requests.labels(self._protocol.name).inc()
        _refused.labels(self._protocol.name, bounded_reason(error.reason)).inc()
        count_refused_request(error, 0)
        kind = parse_media_type(head.headers.get("content-type", ""))
        answer = self._protocol.answer(WriteCall(head, kind, ""), Outcome(error=error))
        return replace(answer, headers=(*answer.headers, self._allow)) if answer.status == 405 else answer
