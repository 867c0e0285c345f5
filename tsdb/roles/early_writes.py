"""EarlyWrites: refuses requests with a body while a role starts. A sender repeats after 503, and gives up after 404."""

from __future__ import annotations

import math
from collections.abc import Callable

from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.byte_budget import RequestBytes, Reserved
from tsdb.ops.http.bodies import HttpAnswer, HttpHead, Reply

RETRY_AFTER_S = 1.0
BODY_BYTES_MAX = 64 << 20  # No body is kept. A larger one is refused for its size.


class EarlyWrites:
    """A BodyRoute (tsdb.ops.http.bodies) for every path. refusal: the error with the reason, read for each request."""

    name = "unknown"  # The name that a GET of an unknown path gets.
    bytes_max = BODY_BYTES_MAX
    request_timeout_s = None
    is_open = False

    def __init__(self, refusal: Callable[[], Unavailable]) -> None:
        self.held = RequestBytes(BODY_BYTES_MAX)
        self._refusal = refusal

    def authorization(self, head: HttpHead) -> str | None:
        """Raises Unavailable, before a token is read: the form of a token depends on the protocol, and some senders
        throw a request away after 401."""
        raise self._refusal()

    def check(self, head: HttpHead) -> None:
        """Raises Unavailable, always."""
        raise self._refusal()

    def allows_origin(self, origin: str) -> bool:
        return False

    def handle(self, head: HttpHead, body: bytes | bytearray, reserved: Reserved, reply: Reply) -> None:
        """Never called, because `check` refuses each request."""
        raise AssertionError("a request passed the check of a role that starts")

    def refusal(self, head: HttpHead, error: TsdbError) -> HttpAnswer:
        retry_after_s = getattr(error, "retry_after_s", None) or RETRY_AFTER_S
        headers = (("retry-after", str(math.ceil(retry_after_s))),)
        status = 503 if isinstance(error, Unavailable) else 401
        return HttpAnswer(status, f"{error.message}\n".encode(), headers=headers if status == 503 else ())
