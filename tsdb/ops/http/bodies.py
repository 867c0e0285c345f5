"""Routes with a body: define their interface to the server, and the answer of a route.

The event loop collects the body, within the bounds of the route, and calls the route once the body is whole. A route
returns at once and answers later, from any thread. Memory is reserved before it is filled, in steps, so that a caller
holds no more than twice the bytes it has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tsdb.model.errors import TsdbError
from tsdb.ops.byte_budget import RequestBytes, Reserved

STEP_BYTES = 16 << 10  # First reservation of a body; a small request needs no second one.
# Bytes of header and objects of a request, so that the reservation also bounds the number of requests.
REQUEST_BYTES = 4 << 10

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class HttpHead:
    """Request line and header. path: decoded; query: as sent, without `?`. headers: lower-case names; of a field that
    comes twice the last value. peer: HOST:PORT of the connection; "" for an unknown one."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    peer: str = ""


class BodyStream(Protocol):
    """A body that is made in pieces while it is sent.

    Its methods run on the event loop's thread and return at once. `make` is called again only after its pieces came.
    """

    def make(self, deliver: Callable[[Sequence[bytes], bool], None]) -> None:
        """Make the next pieces on another thread, which calls `deliver(pieces, is_last)` once. No pieces and not the
        last: the body cannot be made, and the connection is closed."""

    def close(self) -> None:
        """The body is sent, or its peer has left."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """headers: headers beside content-length and content-type. An empty `content_type` leaves the header out.

    stream: the bytes after `body`.
    """

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Headers = ()
    stream: BodyStream | None = None


class Reply(Protocol):
    """Sends the answer of one request to its peer."""

    def __call__(self, answer: HttpAnswer) -> None:
        """Send the answer, once, from any thread."""

    def on_drop(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the event loop's thread if the peer leaves before its answer. Call this only within
        `handle`."""


class BodyRoute(Protocol):
    """A route. Its methods run on the event loop's thread and return at once."""

    @property
    def name(self) -> str:
        """Label of the route's counter: a path that the role chose, never the caller's."""

    @property
    def bytes_max(self) -> int:
        """Limit of a body, chunked or not."""

    @property
    def request_timeout_s(self) -> float | None:
        """Time from the header until the peer has the answer. None: that of the server."""

    @property
    def held(self) -> RequestBytes:
        """The memory that requests may take together."""

    @property
    def is_open(self) -> bool:
        """Whether callers need no token, for files that are the same for everybody."""

    def authorization(self, head: HttpHead) -> str | None:
        """The credentials of the caller in the form `Bearer TOKEN`."""

    def check(self, head: HttpHead) -> None:
        """Raises the TsdbError of a request that its header alone refuses, before its body is read."""

    def allows_origin(self, origin: str) -> bool:
        """Whether web pages of another origin may send this request. Not called for programs and for our own pages."""

    def handle(self, head: HttpHead, body: bytes | bytearray, reserved: Reserved, reply: Reply) -> None:
        """Take a whole request. `reply` is called once, from any thread. The server frees `reserved` after it."""

    def refusal(self, head: HttpHead, error: TsdbError) -> HttpAnswer:
        """The answer to a request refused before `handle`: the error of `check`, Unauthenticated, Overloaded,
        InvalidRequest (message_too_large)."""


class BodyRoutes(Protocol):
    """The routes of a role. They may appear after the start of the server."""

    def route(self, method: str, path: str) -> BodyRoute | None:
        """The route of a request; None when there is no such route. Called on the event loop's thread."""


class JoinedRoutes:
    """The routes of several parts of a role; the first that has a route is chosen. A route named like its path has all
    methods of the path, so it is remembered: these paths are few, because callers choose none."""

    def __init__(self, parts: Sequence[BodyRoutes]) -> None:
        self._parts = parts
        self._known: dict[str, BodyRoute] = {}

    def route(self, method: str, path: str) -> BodyRoute | None:
        known = self._known.get(path)
        if known is not None:
            return known
        for part in self._parts:
            route = part.route(method, path)
            if route is not None:
                if route.name == path:
                    self._known[path] = route
                return route
        return None


class NoBodyRoutes:
    """A role without such routes."""

    def route(self, method: str, path: str) -> BodyRoute | None:
        return None
