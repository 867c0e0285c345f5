"""Framing: finds where a request begins and ends, and refuses a request without a clear end.

A request whose end two programs could see at different positions is refused: the bytes behind it would be a request to
one of them (request smuggling). httptools itself refuses two lengths, a length beside chunks, folded lines and bad
sizes of chunks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus

import httptools

from tsdb.ops.http.bodies import HttpHead
from tsdb.ops.metrics import counter

SPOKEN = "HTTP/1.1"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_OFFERS = frozenset({b"upgrade", b"http2-settings"})
_SLASHES = re.compile(rb"//+")
_REASONS = (
    *("malformed", "cut", "url_too_long", "header_too_large", "header_fields", "large_headers"),
    *("length_required", "transfer_encoding", "version", "connect"),
)
_refused = counter(
    "tsdb_http_refused_total",
    "Requests that the HTTP server refused for their form, with the end of their connection.",
    "reason",
    _REASONS,
)

Field = tuple[bytes, bytes]


class FramingError(Exception):
    """Why the rest of a connection is not parsed, and the answer: status and text."""

    def __init__(self, status: HTTPStatus, reason: str, text: str, *fields: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text
        self._fields = fields

    def count(self) -> None:
        """Once for each refused request."""
        _refused.labels(self.reason).inc()

    def encoded(self, date: Sequence[Field]) -> bytes:
        """The answer, after which the connection is closed."""
        body = f"{self.text}\n".encode()
        lines = [
            f"{SPOKEN} {self.status.value} {self.status.phrase}",
            *(f"{name.decode()}: {value.decode()}" for name, value in date),
            "content-type: text/plain; charset=utf-8",
            f"content-length: {len(body)}",
            *self._fields,
            "connection: close",
        ]
        return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def malformed(problem: object) -> FramingError:
    """The error for bytes that are not HTTP/1.1."""
    if "PRI" in str(problem):
        return _wrong_version("2")
    return FramingError(HTTPStatus.BAD_REQUEST, "malformed", f"the request is malformed: {problem}")


def check_framing(head: HttpHead, version: str, fields: Sequence[Field]) -> None:
    """Raises FramingError."""
    if version not in ("1.0", "1.1"):
        raise _wrong_version(version)
    # If no field comes twice, both have the same length. Counting costs 2 us of 60 for a small write.
    if len(fields) > len(head.headers) and sum(name == b"host" for name, _ in fields) > 1:
        raise FramingError(HTTPStatus.BAD_REQUEST, "malformed", "the header has two Host fields")
    coding = head.headers.get("transfer-encoding")
    if coding is not None and (version == "1.0" or coding.strip().lower() != "chunked"):
        text = f"of Transfer-Encoding only chunked is accepted, with {SPOKEN}"
        raise FramingError(HTTPStatus.NOT_IMPLEMENTED, "transfer_encoding", text)
    if version == "1.0" and head.method in _WITH_BODY and "content-length" not in head.headers:
        raise FramingError(HTTPStatus.LENGTH_REQUIRED, "length_required", "a body by HTTP/1.0 needs Content-Length")


def header_without_offer(method: bytes, url: bytes, version: str, fields: Sequence[Field]) -> bytes:
    """A header without its offer to speak another protocol, as bytes."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    for name, value in fields:
        if name == b"connection":
            kept = (part for part in value.split(b",") if part.strip().lower() not in _OFFERS)
            lines.append(b"connection: %b" % b",".join(kept))
        elif name not in _OFFERS:
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join((*lines, b"", b""))


def target_of(method: str, url: bytes) -> bytes:
    """Path and query of a request target. Senders join an address and a path, so slashes may come twice.

    Raises FramingError for a target that is not a URL.
    """
    if method == "CONNECT":
        raise FramingError(HTTPStatus.METHOD_NOT_ALLOWED, "connect", "this is no proxy", "allow: GET, HEAD, POST")
    if b"//" not in url and url.startswith(b"/"):
        return url
    path, mark, query = url.partition(b"?")
    if not path.startswith(b"/"):  # The target has scheme and host, as for a proxy.
        path = httptools.parse_url(url).path or b"/"
    return _SLASHES.sub(b"/", path) + mark + query


def _wrong_version(version: str) -> FramingError:
    text = f"HTTP/{version} is not spoken here: send {SPOKEN}"
    return FramingError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "version", text)
