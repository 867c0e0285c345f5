"""WatchedPage: a page that must stay clean. Errors in its console, refusals of its content security policy and requests
to another origin fail the test that opened it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, WebError, WebSocket, expect

WITHIN_MS = 30_000  # Bound of every wait; a passing test never comes near it.
LOCAL_SCHEMES = frozenset(("about", "blob", "chrome-error", "data"))
# Chromium reports these at other levels than "error".
POLICY = re.compile(r"content.security.policy|refused to (load|execute|apply|connect|frame)", re.IGNORECASE)


class WatchedPage:
    """page: the page; other pages of its context are watched too."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self._origin = urlsplit(origin).netloc
        self._faults: list[str] = []
        self._expected: list[re.Pattern[str]] = []
        context.set_default_timeout(WITHIN_MS)
        expect.set_options(timeout=WITHIN_MS)
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("request", self._request)
        context.on("page", lambda page: page.on("websocket", self._socket))
        self.page: Page = context.new_page()

    def begin_anew(self) -> None:
        """Make the page as good as a fresh one, for the next test: what it stored, its faults and the pointer."""
        self.page.mouse.move(0, 0)
        self.page.goto("/api/v1/status/buildinfo")  # The same origin: the page keeps its process.
        self.page.evaluate("localStorage.clear()")
        self._faults.clear()
        # That answer names no icon, so the browser asks for the usual one, at any later time.
        self._expected = [re.compile(r"/favicon\.ico")]

    def expect_error(self, pattern: str) -> None:
        """Accept errors in the console that match: those of a fault that the test makes."""
        self._expected.append(re.compile(pattern))

    def faults(self) -> list[str]:
        """All faults so far, in the order of their time."""
        return [fault for fault in self._faults if not any(one.search(fault) for one in self._expected)]

    def check(self) -> None:
        """Raises AssertionError with the faults."""
        found = self.faults()
        assert found == [], "\n".join(["the page is not clean:", *found])

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "assert") or POLICY.search(message.text):
            self._faults.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _error(self, error: WebError) -> None:
        self._faults.append(f"uncaught: {error.error}")

    def _request(self, request: Request) -> None:
        self._check_origin(request.url)

    def _socket(self, socket: WebSocket) -> None:
        self._check_origin(socket.url)

    def _check_origin(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in LOCAL_SCHEMES and parts.netloc != self._origin:
            self._faults.append(f"request to another origin: {url}")


@contextmanager
def watched_page(
    browser: Browser,
    origin: str,
    *,
    width: int = 1200,
    height: int = 800,
    dark: bool = False,
    any_certificate: bool = False,
) -> Iterator[WatchedPage]:
    """A page in a fresh profile, with `origin` as its base; checked at the end of the block.

    Motion is reduced, times are UTC. any_certificate: the server's certificate is not verified.
    """
    context = browser.new_context(
        base_url=origin,
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        timezone_id="UTC",
        locale="en-GB",
        service_workers="block",
        ignore_https_errors=any_certificate,
    )
    try:
        watched = WatchedPage(context, origin)
        yield watched
        watched.check()
    finally:
        context.close()
