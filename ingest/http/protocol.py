"""WriteProtocol: how a protocol of writes plugs into the HTTP door.

The door checks method, token, content type and encoding, bounds and expands the body, calls `decode` on one of its
threads, writes the rows, waits for the log without a thread, and sends what `answer` makes of the outcome. So a
protocol is two functions and a description:

    def decode(call: WriteCall) -> Decoded:
        rows = decode_lines(call.body)                   # Rows; raises InvalidRequest for a body that is no good
        return Decoded(rows)

    def answer(call: WriteCall, outcome: Outcome) -> HttpAnswer:
        if outcome.error is None:
            return HttpAnswer(204, content_type="")
        return json_answer(status_of(outcome.error), ...)  # ingest.http.answers

    LINES = WriteProtocol(
        name="influx",                                   # the label `protocol` of the counters
        paths=("/write", "/api/v2/write"),
        content_types=frozenset({"", "text/plain"}),     # "" accepts a request without one; None accepts all
        encodings=frozenset({"", "identity", "gzip"}),   # "" accepts a request without one
        decode=decode,
        answer=answer,
    )

`tsdb.roles.gateway` lists the protocols. A request that writes nothing (a ping) is a protocol too: its `decode`
returns an HttpAnswer. Rows that the protocol refuses are `Rows.errors`: the door writes the others, and `outcome.error`
is then a RefusedSeries that lists them. `Decoded.families` is metadata, written to the topic `metadata` when it is new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.pipeline import AcceptedWrite
from ingest.rows import Rows
from tsdb.model.errors import TsdbError
from tsdb.model.family import Family
from tsdb.ops.http.bodies import HttpAnswer, HttpHead
from tsdb.ops.request_bytes import Reserved


@dataclass(frozen=True, slots=True)
class MediaType:
    """A content type in lower case, such as application/x-protobuf, and its parameters."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteCall:
    """One request. body: expanded. `body_bytes_max` bounds what the protocol may make of it: labels and arrays."""

    head: HttpHead
    media_type: MediaType
    encoding: str
    body: bytes | bytearray = b""
    body_bytes_max: int = 0
    reserved: Reserved | None = None

    def reserve(self, extra: int) -> None:
        """Reserve `extra` bytes beside those of the body, before they are allocated. Raises Overloaded."""
        if self.reserved is not None:
            self.reserved.set(self.reserved.size + extra)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Content of a body. detail: an object of the protocol for its `answer`."""

    rows: Rows
    families: Sequence[Family] = ()
    detail: object = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a request.

    result: what was written; None when nothing was. error: None for success. With both, the good rows are on the log
    and the error (RefusedSeries, SourceOverRate) lists the others. decoded: None when `decode` raised the error, or
    the door refused the request before it.
    """

    result: AcceptedWrite | None = None
    error: TsdbError | None = None
    decoded: Decoded | None = None


def bearer(head: HttpHead) -> str | None:
    """The usual place of credentials."""
    return head.headers.get("authorization")


@dataclass(frozen=True, slots=True)
class WriteProtocol:
    """content_types: accepted ones without parameters, "" for a request without; None: all. default_encoding: of a
    request that names none.


    decode: raises InvalidRequest; reason `unsupported_version` or `unsupported_media_type` is answered with 415.
    answer: of every request of the protocol, refused ones too; it has no side effects. authorization: the credentials
    in the form `Bearer TOKEN`.
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
