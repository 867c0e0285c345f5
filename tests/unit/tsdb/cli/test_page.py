"""`tsdb open` prints a link that the explorer reads, and says what to do when no page is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from support.cli import Shell
from support.times import NOW_MS
from tsdb.api.prometheus.parameters import Form
from tsdb.cli.options.connection import DEFAULT_ADDRESS
from tsdb.cli.page import DEFAULT_PAGE, PANELS_MAX, PROBED
from tsdb.config import StandaloneSettings
from tsdb.ops.http.bodies import HttpHead
from tsdb.ui import link
from tsdb.ui.link import View, view_of


class Page(BaseHTTPRequestHandler):
    """A server with a page."""

    def do_GET(self) -> None:  # The name is the library's.
        self.send_response(200 if self.path == PROBED else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print no line for a request."""


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "TSDB_PAGE"):
        monkeypatch.delenv(name, raising=False)


def view(printed: str) -> View:
    found, problems = view_of(Form.of(HttpHead("GET", "/", printed.strip().partition("?")[2], {}), b""), NOW_MS)
    assert list(problems) == []
    return found


def test_the_default_address_is_that_of_the_servers() -> None:
    fields = StandaloneSettings.model_fields
    assert (fields["http"].default, fields["grpc"].default) == (DEFAULT_PAGE, DEFAULT_ADDRESS)
    assert PANELS_MAX == link.PANELS_MAX


def test_the_link_has_the_expressions_and_the_last_hour(shell: Shell, page: str) -> None:
    done = shell.ok("open", "up", 'rate(x{a="b"}[5m])', "--page", page)
    assert done.text.startswith(f"http://{page}/?v=1&")
    found = view(done.text)
    assert ([panel.query for panel in found.panels], found.range) == (["up", 'rate(x{a="b"}[5m])'], "1h")
    assert done.err == "no browser was found on this machine: open the link\n"


@pytest.mark.parametrize(
    ("options", "want"),
    [
        (("--last", "2d"), ("2d", None, None)),
        (("--last", "90m"), ("90m", None, None)),
        (("--start", "1000000", "--end", "2000000"), ("", 1_000_000, 2_000_000)),
    ],
)
def test_the_range_of_the_link_is_that_of_the_options(
    shell: Shell, page: str, options: tuple[str, ...], want: tuple[str, int | None, int | None]
) -> None:
    found = view(shell.ok("open", "up", "--no-browser", "--page", f"http://{page}/", *options).text)
    assert (found.range, found.start_ms, found.end_ms) == want


def test_a_browser_gets_the_link(shell: Shell, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{program} %s")
    done = shell.ok("open", "up", "--page", page)
    assert seen.read_text() == done.text
    assert done.err == ""
