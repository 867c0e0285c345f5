"""Pages of a process with TLS and a token: sign-in, an answer, a system page, and no way in over plain HTTP."""

from __future__ import annotations

import http.client
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.api.secured import TOKEN, secured_standalone
from support.browser.explorer import Explorer
from support.browser.watched_page import watched_page

pytestmark = pytest.mark.timeout(900)  # The start of a process loads or compiles all kernels.


def test_pages_over_tls_open_with_the_token_of_clients(chromium: Browser, tmp_path: Path) -> None:
    with (
        secured_standalone(tmp_path) as server,
        watched_page(chromium, server.url, any_certificate=True) as watched,
    ):
        watched.expect_error("the server responded with a status of 401")
        watched.page.goto("/")
        watched.page.locator("#token").fill(TOKEN)
        watched.page.locator("#token").press("Enter")
        expect(watched.page.locator("textarea")).to_be_visible()
        (cookie,) = watched.page.context.cookies()
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Lax")
        explorer = Explorer(watched.page)
        explorer.run("vector(42)")
        expect(explorer.problem()).to_be_hidden()
        assert len(explorer.legend()) == 1
        watched.page.goto("/ui/partitions")
        expect(watched.page.locator("h1")).to_have_text("Partitions")
        with closing(http.client.HTTPConnection(server.role.http, timeout=30.0)) as plain:
            plain.request("GET", "/")
            with pytest.raises((http.client.BadStatusLine, ConnectionError)):
                plain.getresponse()
