"""ReadRequest: decodes and checks a request of remote read."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cramjam
from google.protobuf.message import DecodeError

from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import Matcher, MatchType
from tsdb.v1 import remote_read_pb2

REQUEST_BYTES_MAX = 1 << 20  # Bytes of the expanded request. A query of Prometheus has some hundred bytes.
QUERIES_MAX = 64  # Queries of one request. Each is a read; Prometheus sends one.
# Memory of messages beside their bytes: an empty one has two bytes in the request and some sixty in memory.
MESSAGE_COPIES = 32

_DECODE = "bad_remote_read"
_MATCH_TYPES = {
    remote_read_pb2.LabelMatcher.EQ: MatchType.EQUAL,
    remote_read_pb2.LabelMatcher.NEQ: MatchType.NOT_EQUAL,
    remote_read_pb2.LabelMatcher.RE: MatchType.REGEX,
    remote_read_pb2.LabelMatcher.NRE: MatchType.NOT_REGEX,
}


class ResponseType(enum.Enum):
    """Forms of an answer. The values are those of the wire."""

    SAMPLES = remote_read_pb2.ReadRequest.SAMPLES
    STREAMED_XOR_CHUNKS = remote_read_pb2.ReadRequest.STREAMED_XOR_CHUNKS


@dataclass(frozen=True, slots=True)
class Query:
    """One selection. start_ms, end_ms: both ends are in the range."""

    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """response_type: form of the answer. takes_samples: whether the caller accepts SAMPLES too."""

    queries: Sequence[Query]
    response_type: ResponseType
    takes_samples: bool


def read_request(body: bytes | bytearray, hold: Callable[[int], None]) -> ReadRequest:
    """Parse the request in a body. hold: reserves memory; its argument is the total.

    Raises InvalidRequest, and what `hold` raises.

    """
    data = _expanded(body, hold)
    message = remote_read_pb2.ReadRequest()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"the body is no ReadRequest: {error}", reason=_DECODE) from error
    if len(message.queries) > QUERIES_MAX:
        raise InvalidRequest(f"{len(message.queries)} queries; the limit is {QUERIES_MAX}", reason=_DECODE)
    accepted = message.accepted_response_types
    form = _response_type(accepted)
    takes_samples = form is ResponseType.SAMPLES or ResponseType.SAMPLES.value in accepted
    return ReadRequest([_query(query) for query in message.queries], form, takes_samples)


def _expanded(body: bytes | bytearray, hold: Callable[[int], None]) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(body) if body else 0
        if size > REQUEST_BYTES_MAX:
            raise InvalidRequest(f"the body expands to {size} bytes; limit is {REQUEST_BYTES_MAX}", reason=_DECODE)
        hold(MESSAGE_COPIES * size)
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise InvalidRequest(str(error), reason=_DECODE) from error


def _response_type(accepted: Sequence[int]) -> ResponseType:
    """The first known type in the order of the request."""
    known: dict[int, ResponseType] = {kind.value: kind for kind in ResponseType}
    for value in accepted:
        if value in known:
            return known[value]
    if accepted:
        shown = ", ".join(map(str, accepted[:10]))
        raise InvalidRequest(
            f"server does not support any of the requested response types: {shown}; supported: "
            + ", ".join(f"{kind.name} ({kind.value})" for kind in ResponseType),
            reason=_DECODE,
        )
    return ResponseType.SAMPLES


def _query(query: remote_read_pb2.Query) -> Query:
    matchers = tuple(_matcher(matcher) for matcher in query.matchers)
    return Query(matchers, query.start_timestamp_ms, query.end_timestamp_ms)


def _matcher(matcher: remote_read_pb2.LabelMatcher) -> Matcher:
    kind = _MATCH_TYPES.get(matcher.type)
    if kind is None:
        raise InvalidRequest(f"invalid matcher type {matcher.type}", reason="bad_matcher")
    return Matcher(kind, _text(matcher.name), _text(matcher.value))


def _text(raw: bytes) -> str:
    """Bytes that are not UTF-8 become surrogates, as in the texts of forms."""
    return raw.decode(errors="surrogateescape")
