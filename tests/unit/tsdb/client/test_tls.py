"""TLS: client and server are authenticated, or nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fakes.fake_reader import FakeServer
from support.servers.certificates import Authority
from tsdb.client import ClientTls, InvalidRequest, Unavailable, connect
from tsdb.ops.tls import ServerTls

TIMEOUT_S = 0.5


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.in_folder(tmp_path / "ours")


@pytest.fixture(params=[False, True], ids=["tls", "mtls"])
def mutual(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def server(authority: Authority, mutual: bool) -> Iterator[FakeServer]:
    cert_file, key_file = authority.issue("server")
    tls = ServerTls(cert_file, key_file, authority.ca_file if mutual else None)
    with FakeServer(tls.grpc_credentials()) as running:
        yield running


def test_the_right_authority_and_certificate_are_let_in(authority: Authority, server: FakeServer) -> None:
    tls = ClientTls(authority.ca_file, *authority.issue("client"))
    with connect(server.address, tls=tls, token="s3cret") as client:
        assert len(client.coverage()) == 1
    assert server.metadata[0]["authorization"] == "Bearer s3cret"


def test_a_client_without_a_certificate_is_let_in_only_where_none_is_asked(
    authority: Authority, server: FakeServer, mutual: bool
) -> None:
    timeout_s = TIMEOUT_S if mutual else 60.0
    with connect(server.address, tls=ClientTls(authority.ca_file), timeout_s=timeout_s) as client:
        if not mutual:
            assert len(client.coverage()) == 1
            return
        with pytest.raises(Unavailable):
            client.coverage()


def test_a_server_of_another_authority_is_not_trusted(tmp_path: Path, server: FakeServer) -> None:
    other = Authority.in_folder(tmp_path / "other")
    tls = ClientTls(other.ca_file, *other.issue("client"))
    with connect(server.address, tls=tls, timeout_s=TIMEOUT_S) as client, pytest.raises(Unavailable):
        client.coverage()
    assert server.requests == []


def test_plain_text_to_a_tls_server_is_unavailable(server: FakeServer) -> None:
    with connect(server.address, token="s3cret", timeout_s=TIMEOUT_S) as client, pytest.raises(Unavailable):
        client.coverage()
    assert server.requests == []


def test_a_key_of_another_certificate_is_refused_at_once(authority: Authority) -> None:
    cert_file, _ = authority.issue("one")
    _, other_key = authority.issue("two")
    with pytest.raises(InvalidRequest, match=r"one\.pem"):
        ClientTls(authority.ca_file, cert_file, other_key)
