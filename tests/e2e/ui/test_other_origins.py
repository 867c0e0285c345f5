"""A page of another origin, in a real browser, neither writes nor reads here; the product's own page goes on."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser

from support.browser.seeded import Seeded

pytestmark = pytest.mark.timeout(900)  # The start of a process loads or compiles all kernels.

# Each way in which a page can send: a form, fetch with and without reading, and fetch with a type that asks before.
SCRIPT = """async origin => {
  const write = (path, type, mode) =>
    fetch(origin + path, {method: "POST", mode, headers: {"content-type": type}, body: "foreign value=1"});
  const ways = [
    () => write("/write", "text/plain", "no-cors"),
    () => write("/write", "text/plain", "cors"),
    () => write("/api/v2/write?bucket=b", "application/json", "cors"),
    () => fetch(origin + "/api/v1/query?query=1"),
    () => fetch(origin + "/api/v1/query", {method: "POST", body: new URLSearchParams({query: "1"})}),
    () => fetch(origin + "/metrics"),
  ];
  const seen = [];
  for (const way of ways) {
    try {
      const answer = await way();
      seen.push(answer.type === "opaque" ? "opaque" : await answer.text());
    } catch (error) {
      seen.push("refused");
    }
  }
  return seen;
}"""
FORM = """<form method="post" enctype="text/plain" action="{origin}/write"><input name="foreign value" value="1"></form>
<script>document.forms[0].submit()</script>"""


@contextmanager
def other_origin(page: str) -> Iterator[str]:
    """The address of a server with one page."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def result(served: Seeded, query: str) -> object:
    with urllib.request.urlopen(f"{served.origin}/api/v1/query?{urlencode({'query': query})}", timeout=60) as answer:
        return json.load(answer)["data"]["result"]


def test_scripts_of_another_origin_write_and_read_nothing(chromium: Browser, served: Seeded) -> None:
    with other_origin("<p>other") as origin, chromium.new_context() as context:
        page = context.new_page()
        page.goto(origin)
        assert page.evaluate(SCRIPT, served.origin) == ["opaque", *["refused"] * 5]
    assert result(served, 'count_over_time({__name__=~"foreign.*"}[1h])') == []


def test_a_form_of_another_origin_writes_nothing(chromium: Browser, served: Seeded) -> None:
    with other_origin(FORM.format(origin=served.origin)) as origin, chromium.new_context() as context:
        page = context.new_page()
        with page.expect_response(f"{served.origin}/write") as answered:
            page.goto(origin, wait_until="commit")
        assert answered.value.status == 403
    assert result(served, 'count_over_time({__name__=~"foreign.*"}[1h])') == []


def test_a_name_that_was_pointed_at_this_machine_opens_nothing(chromium: Browser, served: Seeded) -> None:
    request = urllib.request.Request(f"{served.origin}/api/v1/query?query=1", headers={"host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    with caught.value:
        assert caught.value.code == 403
        assert b"http_hosts" in caught.value.read()
