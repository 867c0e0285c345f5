"""`tsdb await-release` waits for older releases that answer, and for nothing else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.cli import Shell
from support.servers.certificates import Authority
from tsdb.cli.await_release import older, release_of
from tsdb.config.types import HostPort
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.server import OpsServer, serve_ops
from tsdb.ops.process_metrics import package_version
from tsdb.ops.tls import ServerTls

OWN = release_of(package_version())
NEWER = (OWN[0] + 1,)


def running(tls: ServerTls | None = None) -> OpsServer:
    # The role is neither ready nor alive, because the order of an upgrade depends only on the release.
    return serve_ops("127.0.0.1", 0, lambda: Readiness("replaying"), lambda: Liveness(False, "stands still"), tls=tls)


@contextlib.contextmanager
def first_release() -> Iterator[int]:
    """The port of a server that answers one request as the first release does, without a version."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"alive":true,"reason":""}')

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not logged."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield server.server_port
        thread.join()


@pytest.mark.parametrize(
    ("version", "release"),
    [("1.2.3", (1, 2, 3)), ("0.10.0rc1", (0, 10, 0)), ("2.0.dev3+g1", (2, 0)), ("unknown", ()), ("", ())],
)
def test_a_release_is_the_numbers_of_a_version(version: str, release: tuple[int, ...]) -> None:
    assert release_of(version) == release


def test_a_release_below_is_named_with_its_address_and_an_equal_one_is_not() -> None:
    with running() as server:
        names = [HostPort("localhost", server.port)]
        assert older(names, OWN, None) == []
        assert older(names, NEWER, None) == [f"localhost at 127.0.0.1:{server.port} runs {package_version()}"]


def test_a_process_that_is_away_and_a_name_that_does_not_resolve_are_passed_over() -> None:
    with running() as server:
        gone = server.port
    assert older([HostPort("127.0.0.1", gone), HostPort("nowhere.invalid", 1)], NEWER, None) == []


def test_a_server_that_names_no_release_is_older() -> None:
    """As the first release does."""
    with first_release() as port:
        assert older([HostPort("127.0.0.1", port)], OWN, None) == [
            f"127.0.0.1 at 127.0.0.1:{port} runs a release without a number"
        ]


def test_over_tls_the_name_is_checked_and_not_the_address(shell: Shell, tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path)
    with running(ServerTls(*authority.issue("server", "localhost"))) as server:
        done = shell.ok("await-release", f"localhost:{server.port}", "--tls-ca", authority.ca_file)
        assert done.err.splitlines() == [f"no process runs a release older than {package_version()}"]


def test_the_command_waits_and_ends_when_the_older_process_has_gone(shell: Shell) -> None:
    server = running()
    ending = threading.Timer(0.5, server.join, [10.0])
    with server:
        ending.start()
        done = shell.ok("await-release", f"127.0.0.1:{server.port}", "--release", "999.0")
    ending.join()
    assert done.err.splitlines() == [
        f"waiting for release 999.0: 127.0.0.1 at 127.0.0.1:{server.port} runs {package_version()}",
        "no process runs a release older than 999.0",
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["loader"], "loader"),
        (["loader:7411", "--release", "latest"], "'latest' has no release such as 1.2.3"),
        (["loader:7411", "--tls-ca", "nowhere.pem"], "nowhere.pem"),
        (["loader:7411", "--tls-ca", __file__], "is no PEM of authorities"),
        ([], "HOST:PORT"),
    ],
)
def test_a_misuse_is_named(shell: Shell, arguments: list[str], named: str) -> None:
    done = shell.run("await-release", *arguments)
    assert done.code == 2
    assert named in " ".join(done.err.split())
