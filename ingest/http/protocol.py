"""WriteProtocol: the interface between a protocol of writes and the HTTP receiver, which calls it.

The receiver checks method, token, content type and encoding, bounds and expands the body, calls `decode` on one of its
threads, writes the rows, waits for the log without a thread, and sends what `answer` makes of the outcome. So a
protocol is two functions and a description:

    def decode(call: WriteCall) -> Decoded:
        rows = decode_lines(call.body)                   # Rows; raises InvalidRequest for an invalid body
        return Decoded(rows)

    def answer(call: WriteCall, outcome: Outcome) -> HttpAnswer:
        if outcome.error is None:
            return HttpAnswer(204, content_type="")
        return json_answer(status_of(outcome.error), ...)  # ingest.http.protocol

    LINES = WriteProtocol(
        name="influx",                                   # the label `protocol` of the counters
        paths=("/write", "/api/v2/write"),
        content_types=frozenset({"", "text/plain"}),     # "" accepts a request without one; None accepts all
        encodings=frozenset({"", "identity", "gzip"}),   # "" accepts a request without one
        decode=decode,
        answer=answer,
    )

`tsdb.roles.gateway` lists the protocols. A request that writes nothing (a ping) is a protocol too: its `decode`
returns an HttpAnswer. Rows that the protocol refuses are `Rows.errors`: the receiver writes the others, and
`outcome.error` is then a RefusedSeries that lists them. `Decoded.families` is metadata, written to the topic when new.

It also reads the content type and encoding of a request, and refuses those that a protocol does not accept.

It makes the answers: the status of each of our errors, the hint to retry, and the text of refused series.

A sender repeats a request after 429 and 503, and sends nothing else meanwhile. So both are for what waiting mends. A
refusal that the same request would meet again is 400, 413 or 415: its sender goes on with the next request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ingest.pipeline import AcceptedWrite
from ingest.quota.source_quota import REASONS as SOURCE_RATES
from ingest.quota.token_quota import REASONS as TOKEN_RATES
from ingest.refusals import RefusedRows, refused_rows
from ingest.rows import Rows
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unauthenticated, Unavailable
from tsdb.model.family import Family
from tsdb.ops.byte_budget import Reserved
from tsdb.ops.http.bodies import HttpAnswer, HttpHead
from tsdb.ops.http.sites import FORBIDDEN

MEDIA_TYPE = "unsupported_media_type"
ENCODING = "unsupported_encoding"
VERSION = "unsupported_version"
_SHOWN = 100  # Characters of a header in a message.

RETRY_AFTER_S = 1
TEXT_BYTES_MAX = 4096
TOO_LARGE = frozenset(
    {"message_too_large", "request_too_large", "too_many_series", "too_many_samples", "record_too_large"}
)
UNSUPPORTED = frozenset({MEDIA_TYPE, ENCODING, VERSION})
METHOD = "method_not_allowed"
LENGTH = "length_required"
ELSEWHERE = frozenset({"clock", "draining"})  # A refusal for one of these reasons may not repeat at another gateway.
CALLER_RATES = frozenset({*SOURCE_RATES, *TOKEN_RATES})


def media_type(protocol: WriteProtocol, header: str) -> MediaType:
    """The content type of a header. Raises InvalidRequest (unsupported_media_type)."""
    found = parse_media_type(header)
    if protocol.content_types is not None and found.name not in protocol.content_types:
        accepted = ", ".join(sorted(name for name in protocol.content_types if name))
        raise InvalidRequest(
            f"content-type {shown(found.name)} is not accepted here; send {accepted}",
            reason=MEDIA_TYPE,
        )
    return found


def encoding(protocol: WriteProtocol, header: str) -> str:
    """The content encoding of a header in lower case, or the protocol's default. Raises InvalidRequest
    (unsupported_encoding)."""
    found = header.strip().lower() or protocol.default_encoding
    if found not in protocol.encodings:
        accepted = ", ".join(sorted(name for name in protocol.encodings if name))
        raise InvalidRequest(
            f"content-encoding {shown(found)} is not accepted here; send {accepted or 'none'}", reason=ENCODING
        )
    return found


@lru_cache(64)  # A header has at most 16 KiB.
def parse_media_type(text: str) -> MediaType:
    """`text`: the header. Parameters without a value are left out."""
    name, *rest = text.split(";")
    pairs = (part.partition("=") for part in rest)
    parameters = {key.strip().lower(): value.strip().strip('"') for key, equals, value in pairs if equals}
    return MediaType(name.strip().lower(), parameters)


def shown(text: str) -> str:
    """The value of a header, shortened for a message."""
    return repr(text[:_SHOWN]) if text else "(none)"


@dataclass(frozen=True, slots=True)
class MediaType:
    """A content type in lower case, such as application/x-protobuf, and its parameters."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteCall:
    """A request. body: the expanded body. `body_bytes_max` bounds the labels and arrays that the protocol may make of
    it. may_wait: False on the event loop's thread; there `decode` raises MustWait, before it counts anything.
    """

    head: HttpHead
    media_type: MediaType
    encoding: str
    body: bytes | bytearray = b""
    body_bytes_max: int = 0
    reserved: Reserved | None = None
    may_wait: bool = True

    def reserve(self, extra: int) -> None:
        """Reserve `extra` bytes beside those of the body, before they are allocated. Raises Overloaded."""
        if self.reserved is not None:
            self.reserved.set(self.reserved.size + extra)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded body. detail: an object that the protocol passes to its `answer`."""

    rows: Rows
    families: Sequence[Family] = ()
    detail: object = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a request.

    result: the result of the write; None when nothing was written. error: None for success. With both, the good rows
    are on the log and the error (RefusedSeries, SourceOverRate) lists the others. decoded: None when `decode` raised
    the error, or the receiver refused the request before it.
    """

    result: AcceptedWrite | None = None
    error: TsdbError | None = None
    decoded: Decoded | None = None


def bearer(head: HttpHead) -> str | None:
    """Credentials from the header `Authorization`."""
    return head.headers.get("authorization")


@dataclass(frozen=True, slots=True)
class WriteProtocol:
    """content_types: accepted ones without parameters, "" for a request without; None: all. default_encoding: the
    default encoding of a request that names none.

    decode: raises InvalidRequest; reason `unsupported_version` or `unsupported_media_type` is answered with 415.
    answer: the answer of every request of the protocol, refused ones too; it has no side effects. authorization: the
    credentials in the form `Bearer TOKEN`.
    """

    name: str
    paths: tuple[str, ...]
    content_types: frozenset[str] | None
    encodings: frozenset[str]
    decode: Callable[[WriteCall], Decoded | HttpAnswer]
    answer: Callable[[WriteCall, Outcome], HttpAnswer]
    methods: frozenset[str] = frozenset({"POST"})
    authorization: Callable[[HttpHead], str | None] = bearer
    default_encoding: str = ""


def status_of(error: TsdbError) -> int:
    """The status code of an error."""
    if isinstance(error, Unauthenticated):
        return 401
    if isinstance(error, InvalidRequest):
        return _invalid(error.reason)
    if isinstance(error, Overloaded):
        return 429 if error.reason in CALLER_RATES else 503  # A rate of the caller alone, or the load of the gateway.
    return 503 if isinstance(error, Unavailable) else 500


def _invalid(reason: str) -> int:
    if reason in UNSUPPORTED:
        return 415
    if reason in TOO_LARGE:
        return 413
    if reason in FORBIDDEN:
        return 403
    return {METHOD: 405, LENGTH: 411}.get(reason, 400)


def error_headers(error: TsdbError) -> tuple[tuple[str, str], ...]:
    """Headers of a refusal: retry-after in whole seconds for 429 and 503, connection for a gateway that clients must
    leave, www-authenticate for 401.
    """
    status = status_of(error)
    if status == 401:
        return (("www-authenticate", "Bearer"),)
    if status not in (429, 503):
        return ()
    # A sender that keeps its connection would reach this gateway again, through any load balancer.
    elsewhere = (("connection", "close"),) if error.reason in ELSEWHERE else ()
    hint_s = getattr(error, "retry_after_s", None)
    return (("retry-after", str(RETRY_AFTER_S if hint_s is None else max(1, math.ceil(hint_s)))), *elsewhere)


def error_text(error: TsdbError) -> str:
    """The message, with the refused series if there are any, in at most TEXT_BYTES_MAX bytes of one line each."""
    lines = [error.message]
    if isinstance(error, RefusedRows):
        lines += [f"{offender.reason}: {offender.message}" for offender in error.offenders]
    text = "\n".join(line.replace("\n", " ") for line in lines).encode(errors="replace")
    return text[:TEXT_BYTES_MAX].decode(errors="ignore")


def text_answer(error: TsdbError) -> HttpAnswer:
    """The error as plain text."""
    return HttpAnswer(status_of(error), error_text(error).encode() + b"\n", headers=error_headers(error))


def partial_error(result: AcceptedWrite) -> RefusedRows | None:
    """The error of a write that refused some rows; the others are on the log. None when it refused none.

    A source over its rate comes before all other reasons: the same request may succeed later.
    """
    if not result.refused_series:
        return None
    counts = ", ".join(f"{reason}: {count}" for reason, count in sorted(result.refused.items()))
    return refused_rows(
        result.retry_after_s,
        f"{result.refused_series} series with {result.refused_samples} samples are refused ({counts}); the other "
        f"{result.samples} samples are stored",
        result.refused,
        result.offenders,
        reason=result.offenders[0].reason if result.offenders else "invalid_request",
    )
