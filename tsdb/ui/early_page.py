"""EarlyPage: the page at / while a role starts. It shows the reason of the wait, and asks again every second."""

from __future__ import annotations

import html
from collections.abc import Callable

from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.byte_budget import RequestBytes, Reserved
from tsdb.ops.http.bodies import HttpAnswer, HttpHead, Reply
from tsdb.ui.headers import HTML, UNSTORED
from tsdb.ui.rendering import FOLDER

REQUESTS_BYTES_MAX = 1 << 20


class EarlyPage:
    """A BodyRoute. refusal: the reason of the wait, read for each request. It needs no token, like readiness."""

    name = "/"
    bytes_max = 0
    request_timeout_s = None
    is_open = True

    def __init__(self, refusal: Callable[[], Unavailable]) -> None:
        self.held = RequestBytes(REQUESTS_BYTES_MAX)
        self._refusal = refusal

    def authorization(self, head: HttpHead) -> str | None:
        return None

    def check(self, head: HttpHead) -> None:
        """Every request is accepted."""

    def allows_origin(self, origin: str) -> bool:
        return False

    def handle(self, head: HttpHead, body: bytes | bytearray, reserved: Reserved, reply: Reply) -> None:
        reply(self.refusal(head, self._refusal()))

    def refusal(self, head: HttpHead, error: TsdbError) -> HttpAnswer:
        page = (FOLDER / "starting.html").read_text().replace("PROBLEM", html.escape(error.message))
        return HttpAnswer(503, page.encode(), HTML, (*UNSTORED, ("retry-after", "1")))
