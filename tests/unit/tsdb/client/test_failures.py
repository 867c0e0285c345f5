"""A call that reaches no server of its kind names the address, the likely cause and the next step."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from support.fakes.fake_reader import FakeServer
from support.servers.certificates import Authority
from tsdb.client import Client, ClientTls, InvalidRequest, TsdbError, Unavailable, WriteBatch, connect
from tsdb.ops.tls import ServerTls

SHORT_S = 0.5  # Timeout of calls that are tried again.
LONG_S = 200.0  # Of calls that must not be.
FINAL_WITHIN_S = 60.0


@contextmanager
def serving_nothing() -> Iterator[str]:
    """A gRPC server without the service that is called; its address."""
    server = grpc.server(ThreadPoolExecutor(2))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@contextmanager
def http_server() -> Iterator[str]:
    """A server that speaks HTTP/1 and nothing else; its address."""

    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def failure(client: Client) -> tuple[TsdbError, float]:
    """The error of a failed read, and its seconds."""
    begin = time.monotonic()
    with client, pytest.raises(TsdbError) as caught:
        client.coverage()
    return caught.value, time.monotonic() - begin


def last_failure(address: str, tls: ClientTls | None = None) -> TsdbError:
    """The error of a read that is tried again. On a busy machine a short one may end by its time alone."""
    for timeout_s in (SHORT_S, 5.0, 50.0):
        error, _ = failure(connect(address, tls=tls, timeout_s=timeout_s))
        if error.reason != "deadline":
            break
    return error


def test_a_gateway_asked_to_read_points_to_stores_and_queriers() -> None:
    with serving_nothing() as address:
        error, _ = failure(connect(address))
    assert isinstance(error, InvalidRequest)
    assert error.reason == "wrong_role"
    assert error.message.startswith(
        f"{address} answers no reads (Coverage), it is a gateway: call a store or a querier"
    )


def test_a_gateway_asked_for_promql_points_to_queriers() -> None:
    with serving_nothing() as address, connect(address) as client, pytest.raises(InvalidRequest) as caught:
        client.query("up", 0)
    assert caught.value.reason == "wrong_role"
    assert caught.value.message.startswith(f"{address} answers no queries, it is a gateway: call a querier")


def test_a_store_asked_to_write_points_to_gateways() -> None:
    batch = WriteBatch()
    batch.add({"__name__": "up"}, 1, 1.0)
    with (
        serving_nothing() as address,
        connect(address) as client,
        pytest.raises(
            InvalidRequest, match=f"{address} takes no writes, it is a store or a querier: write to a gateway"
        ),
    ):
        client.write(batch)


def test_a_server_without_tls_is_named_at_once(tmp_path: Path) -> None:
    tls = ClientTls(Authority.in_folder(tmp_path).ca_file)
    with FakeServer() as server:
        error, seconds = failure(connect(server.address, tls=tls, timeout_s=LONG_S))
    assert (error.reason, seconds < FINAL_WITHIN_S) == ("tls", True)
    assert error.message == f"{server.address} does not speak TLS: leave out --tls and --tls-ca"


@pytest.mark.parametrize(("host", "trusted", "words"), [
    ("127.0.0.1", False, "is not trusted (unable to get local issuer certificate): give the CA that signed it"),
    ("db.example", True, "is for another host: call the server by the name in its certificate"),
])  # fmt: skip
def test_a_certificate_that_does_not_fit_is_named_at_once(tmp_path: Path, host: str, trusted: bool, words: str) -> None:
    ours, other = Authority.in_folder(tmp_path / "ours"), Authority.in_folder(tmp_path / "other")
    credentials = ServerTls(*ours.issue("server", host), None).grpc_credentials()
    tls = ClientTls((ours if trusted else other).ca_file)
    with FakeServer(credentials) as server:
        error, seconds = failure(connect(server.address, tls=tls, timeout_s=LONG_S))
    assert (error.reason, seconds < FINAL_WITHIN_S) == ("tls", True)
    assert error.message == f"the certificate of {server.address} {words}"


@pytest.mark.parametrize(
    ("mutual", "words"), [(False, "TLS (--tls, --tls-ca)"), (True, "a client certificate (--tls-")]
)
def test_a_connection_that_a_tls_server_closes_names_the_options(tmp_path: Path, mutual: bool, words: str) -> None:
    ours = Authority.in_folder(tmp_path)
    credentials = ServerTls(*ours.issue("server"), ours.ca_file if mutual else None).grpc_credentials()
    with FakeServer(credentials) as server:
        error = last_failure(server.address, ClientTls(ours.ca_file) if mutual else None)
    assert isinstance(error, Unavailable)
    assert f"{server.address} closed the connection: it may require {words}" in error.message


def test_an_http_port_is_named_at_once() -> None:
    with http_server() as address:
        error, seconds = failure(connect(address, timeout_s=LONG_S))
    assert (error.reason, seconds < FINAL_WITHIN_S) == ("wrong_port", True)
    assert error.message.startswith(f"{address} is not a gRPC port, it speaks HTTP/1: give the server's --grpc address")


def test_nobody_listening_and_an_unknown_host_are_told_apart() -> None:
    refused = last_failure("127.0.0.1:1")
    assert refused.message == "nothing listens at 127.0.0.1:1: start the server, or give its --grpc address"
    unknown = last_failure("nowhere.invalid:1")
    assert unknown.message == "the host of nowhere.invalid:1 is not known: check the name"
    assert refused.reason == unknown.reason == "unreachable"


def test_a_port_that_stays_silent_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        error, _ = failure(connect(address, timeout_s=SHORT_S))
    assert (error.reason, error.message) == ("deadline", f"{address} did not answer within the timeout")


def test_a_servers_own_words_pass_unchanged() -> None:
    with FakeServer() as server:
        server.fail = [Unavailable("Connection refused by a store", reason="unreachable")]
        server.fail *= 1000
        error = last_failure(server.address)
    assert error.message == "Connection refused by a store"
