"""The ops HTTP server answers probes and scrapers, and nothing that is sent to its port stops it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from support.counters import sample
from support.data import fuzz
from support.servers.certificates import Authority
from tsdb.model.errors import Unavailable
from tsdb.ops.auth import Tokens
from tsdb.ops.health import Liveness, PartitionHealth, Readiness
from tsdb.ops.http.server import OpsServer, serve_ops
from tsdb.ops.process_metrics import package_version
from tsdb.ops.tls import ServerTls


@dataclass
class RoleStatus:
    """Readiness and liveness of the role; tests change them."""

    readiness: Readiness = field(default_factory=Readiness)
    liveness: Liveness = field(default_factory=Liveness)


@contextmanager
def ops(role: RoleStatus | None = None, **settings: Any) -> Iterator[OpsServer]:
    role = role or RoleStatus()
    with serve_ops("127.0.0.1", 0, lambda: role.readiness, lambda: role.liveness, **settings) as server:
        yield server


def get(
    server: OpsServer, path: str, token: str | None = None, tls: ssl.SSLContext | None = None, accept: str = "*/*"
) -> tuple[int, str]:
    headers = {"accept": accept} | ({"authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(f"http{'s' if tls else ''}://127.0.0.1:{server.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60, context=tls) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_ready_turns_from_503_with_reasons_to_200() -> None:
    role = RoleStatus(
        Readiness(
            "starting",
            {10: PartitionHealth(False, "replaying", {"lag_records": 7, "lag_ms": None}), 2: PartitionHealth(True)},
        )
    )
    with ops(role) as server:
        status, body = get(server, "/-/ready")
        assert (status, json.loads(body)) == (
            503,
            {
                "ready": False,
                "reason": "starting",
                "partitions": {
                    "2": {"ready": True, "reason": ""},
                    "10": {"ready": False, "reason": "replaying", "lag_records": 7, "lag_ms": None},
                },
            },
        )
        role.readiness = Readiness("", {2: PartitionHealth(True), 10: PartitionHealth(True)})
        assert get(server, "/-/ready")[0] == 200


def test_one_partition_that_is_not_ready_is_enough_for_503() -> None:
    role = RoleStatus(Readiness("", {0: PartitionHealth(True), 1: PartitionHealth(False, "lagging")}))
    with ops(role) as server:
        assert get(server, "/-/ready")[0] == 503


def test_healthy_says_why_not() -> None:
    role = RoleStatus(liveness=Liveness(False, "worker 0 stands still"))
    with ops(role) as server:
        status, body = get(server, "/-/healthy")
        expected = {"alive": False, "reason": "worker 0 stands still", "version": package_version()}
        assert (status, json.loads(body)) == (503, expected)
        role.liveness = Liveness()
        assert get(server, "/-/healthy")[0] == 200


def test_metrics_are_prometheus_text_or_openmetrics() -> None:
    with ops() as server:
        status, body = get(server, "/metrics")
        assert status == 200
        assert "# TYPE tsdb_http_requests_total counter" in body
        assert get(server, "/metrics", accept="application/openmetrics-text")[1].endswith("# EOF\n")


def test_the_index_lists_all_routes_and_a_roles_own_are_served() -> None:
    async def hello(_request: Request) -> Response:
        return PlainTextResponse("hello")

    with ops(routes=[Route("/hello", hello)]) as server:
        assert get(server, "/")[1].split()[1:] == ["/-/ready", "/-/healthy", "/metrics", "/hello"]
        assert get(server, "/hello") == (200, "hello")


def test_unknown_paths_are_404_and_no_label() -> None:
    with ops() as server:
        before = sample("tsdb_http_requests_total", route="unknown", code="404")
        assert get(server, "/made/up?x=1")[0] == 404
    assert sample("tsdb_http_requests_total", route="unknown", code="404") == before + 1


def test_a_failing_check_is_500_without_its_inside_and_the_server_lives(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Readiness:
        raise KeyError("secret detail")

    with serve_ops("127.0.0.1", 0, broken, Liveness) as server:
        status, body = get(server, "/-/ready")
        assert (status, "secret" in body) == (500, False)
        assert get(server, "/-/healthy")[0] == 200
    assert any("http request failed" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("wrong", 401), ("good", 200)])
def test_metrics_want_the_token_and_probes_do_not(token: str | None, status: int) -> None:
    with ops(tokens=Tokens(text="good")) as server:
        assert get(server, "/metrics", token)[0] == status
        assert get(server, "/", token)[0] == status
        assert get(server, "/-/ready", token)[0] == 200
        assert get(server, "/-/healthy", token)[0] == 200


def test_tls(tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path)
    with ops(tls=ServerTls(*authority.issue("server"))) as server:
        assert get(server, "/-/ready", tls=ssl.create_default_context(cafile=str(authority.ca_file)))[0] == 200
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            get(server, "/-/ready", tls=ssl.create_default_context())


def serial_of(server: OpsServer, trust: ssl.SSLContext) -> object:
    """The serial number of the certificate that a new connection gets."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as plain,
        trust.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        shown = secured.getpeercert()
    assert shown is not None
    return shown["serialNumber"]


def test_renewed_certificates_are_served_without_a_restart_and_broken_ones_are_not(tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path)
    cert_file, key_file = authority.issue("server")
    trust = ssl.create_default_context(cafile=str(authority.ca_file))
    with ops(tls=ServerTls(cert_file, key_file)) as server:
        first = serial_of(server, trust)
        assert serial_of(server, trust) == first
        authority.issue("server")
        second = serial_of(server, trust)
        assert second != first
        before = sample("tsdb_tls_reloads_total", result="failed")
        for break_file in (lambda: key_file.write_text("no key"), cert_file.unlink):
            break_file()
            assert serial_of(server, trust) == second
        assert sample("tsdb_tls_reloads_total", result="failed") > before
        authority.issue("server")
        assert serial_of(server, trust) not in (first, second)


READS = ("/", "/-/ready", "/-/healthy", "/metrics", "/hello")


@pytest.mark.parametrize("path", READS)
def test_head_is_answered_wherever_get_is(path: str) -> None:
    async def hello(_request: Request) -> Response:
        return PlainTextResponse("hello")

    with ops(routes=[Route("/hello", hello)]) as server:
        answers = []
        for method in ("GET", "HEAD"):
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
                connection.request(method, path)
                got = connection.getresponse()
                answers.append((got.status, got.getheader("content-type"), bool(got.read())))
        assert answers == [(*answers[0][:2], True), (*answers[0][:2], False)]
        assert answers[0][0] == 200


@pytest.mark.parametrize("path", ["/", "/-/ready", "/-/healthy", "/metrics"])
def test_options_name_the_methods(path: str) -> None:
    with (
        ops() as server,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection,
    ):
        connection.request("OPTIONS", path)
        got = connection.getresponse()
        assert (got.status, got.getheader("allow"), got.read()) == (200, "GET, HEAD, OPTIONS", b"")


@pytest.mark.parametrize("path", ["/", "/metrics", "/hello"])
def test_routes_without_a_body_are_closed_to_pages_of_other_sites_and_probes_are_not(path: str) -> None:
    async def hello(_request: Request) -> Response:
        return PlainTextResponse("hello")

    with ops(routes=[Route("/hello", hello)]) as server:
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=60)
            with caught.value:
                assert caught.value.code == 403
            probe = urllib.request.Request(f"http://127.0.0.1:{server.port}/-/ready", headers=headers)
            with urllib.request.urlopen(probe, timeout=60) as answer:
                assert answer.status == 200


@pytest.mark.parametrize("secure", [False, True])
def test_fuzzed_bytes_do_not_stop_the_server(tmp_path: Path, secure: bool) -> None:
    authority = Authority.in_folder(tmp_path)
    trust = ssl.create_default_context(cafile=str(authority.ca_file)) if secure else None
    with ops(tls=ServerTls(*authority.issue("server")) if secure else None) as server:
        for payload in fuzz.payloads(seed=11, count=40):
            fuzz.send(server.port, payload)
        assert get(server, "/-/ready", tls=trust)[0] == 200


def test_an_address_in_use_is_named() -> None:
    with ops() as server, pytest.raises(Unavailable, match=f"127.0.0.1:{server.port}") as caught:
        serve_ops("127.0.0.1", server.port, Readiness, Liveness)
    assert caught.value.reason == "bind"


@pytest.mark.parametrize("end", [OpsServer.close, OpsServer.abort])
def test_a_server_that_never_started_can_be_ended(end: Callable[[OpsServer], None]) -> None:
    server = serve_ops("127.0.0.1", 0, Readiness, Liveness)
    end(server)
    assert server.join(60.0)


def test_probes_are_answered_until_the_rest_has_drained() -> None:
    with ops(RoleStatus(Readiness("draining"))) as server:
        server.close()
        assert get(server, "/-/ready")[0] == 503
        assert server.join(60.0)
        with pytest.raises(urllib.error.URLError, match="refused"):
            get(server, "/-/ready")


@pytest.mark.parametrize("connected", [False, True])
def test_the_end_waits_for_connections_alone(monkeypatch: pytest.MonkeyPatch, connected: bool) -> None:
    """A process that stops, and each test of a server, would lose a tenth of a second."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def counted(delay_s: float) -> None:
        waits.append(delay_s)
        await sleep(delay_s)

    monkeypatch.setattr(asyncio, "sleep", counted)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ops())
        if connected:
            peer = stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, 60)))
            peer.request("GET", "/-/healthy")
            peer.getresponse().read()
            assert server.join(60.0)
            assert peer.sock.recv(1) == b"", "the server closes what is idle"
    assert bool(waits) == connected


def test_a_closed_server_gives_its_port_back() -> None:
    with ops() as server:
        port = server.port
    with serve_ops("127.0.0.1", port, Readiness, Liveness) as again:
        assert get(again, "/-/healthy")[0] == 200


def test_threads_of_probes_and_scrapes_end_with_the_server() -> None:
    before = set(threading.enumerate())
    with ops() as server:
        for path in ("/-/ready", "/metrics"):
            assert get(server, path)
        started = [
            thread for thread in set(threading.enumerate()) - before if thread.name.startswith(("http-probe", "http-m"))
        ]
    assert len(started) == 2
    for thread in started:
        thread.join(10.0)
    assert not any(thread.is_alive() for thread in started)
