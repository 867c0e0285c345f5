"""Before a role serves, a write over HTTP is refused so that its sender repeats it."""

from __future__ import annotations

import http.client
import threading
from contextlib import closing

from support.counters import sample
from support.servers.logs import wait_until
from tsdb.model.errors import Unavailable
from tsdb.ops.auth import Tokens
from tsdb.ops.health import Liveness
from tsdb.ops.http.server import OpsServer, serve_ops
from tsdb.roles.process import Opened, RoleProcess


def post(server: OpsServer, path: str, **headers: str) -> tuple[int, str | None]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("POST", path, b"body", headers)
        answer = connection.getresponse()
        assert answer.read()
        return answer.status, answer.getheader("retry-after")


def test_a_post_is_503_until_the_role_is_open_and_404_is_never_said_too_early() -> None:
    may_open = threading.Event()

    def open_role() -> Opened:
        if not may_open.is_set():
            raise Unavailable("no broker answers", reason="unavailable")
        return Opened([], dict, lambda: "")

    process = RoleProcess(open_role)
    before = sample("tsdb_http_requests_total", route="unknown", code="503")
    tokens = Tokens(text="good")
    with serve_ops("127.0.0.1", 0, process.readiness, Liveness, bodies=process, tokens=tokens) as server:
        process.start()
        assert post(server, "/api/v1/write", authorization="Bearer good") == (503, "1")
        assert post(server, "/made/up", authorization="Bearer good") == (503, "1")
        # The form of a token depends on the protocol, and some senders throw a request away after 401.
        for early in ("Bearer wrong", "Token good", "Basic bWU6Z29vZA=="):
            assert post(server, "/write", authorization=early) == (503, "1")
        may_open.set()
        wait_until(lambda: process.readiness().ready)
        assert post(server, "/api/v1/write", authorization="Bearer good")[0] == 404
        process.close()
        assert process.join(60.0)
    assert sample("tsdb_http_requests_total", route="unknown", code="503") == before + 5
    assert sample("tsdb_http_requests_total", route="/made/up", code="503") == 0
