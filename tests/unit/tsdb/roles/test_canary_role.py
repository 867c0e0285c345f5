"""A canary that may not read or write is refused by name at its start; a server that is away is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fakes.fake_reader import FakeServer
from tsdb.config import CanarySettings, load
from tsdb.model.errors import ConfigMismatch, InvalidRequest, Unauthenticated, Unavailable
from tsdb.roles.canary import open_canary
from tsdb.v1 import ingest_pb2, reader_pb2


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def settings(server: FakeServer, **given: object) -> CanarySettings:
    return load(CanarySettings, {"gateway": server.address, "querier": server.address, "canary_name": "c"} | given)


def test_it_opens_after_a_read_and_a_write_with_their_tokens(server: FakeServer, tmp_path: Path) -> None:
    for side in ("write", "read"):
        (tmp_path / side).write_text(f"{side}-token\n")
    opened = open_canary(
        settings(server, write_token_file=str(tmp_path / "write"), read_token_file=str(tmp_path / "read"))
    )
    sent = {
        type(request): meta["authorization"] for request, meta in zip(server.requests, server.metadata, strict=True)
    }
    assert sent == {
        reader_pb2.QueryRequest: "Bearer read-token",
        ingest_pb2.WriteRequest: "Bearer write-token",
    }
    assert opened.stalled() == ""
    opened.components[0].abort()


def test_without_read_rights_it_is_refused_before_it_writes(server: FakeServer) -> None:
    server.fail = [Unauthenticated("the token is not known")]
    with pytest.raises(
        ConfigMismatch, match=r"may not read at the querier .*: the token is not known; .*read_token_file"
    ):
        open_canary(settings(server))
    assert not server.received(ingest_pb2.WriteRequest)


def test_without_write_rights_it_is_refused_by_name(server: FakeServer) -> None:
    with FakeServer() as gateway:
        gateway.fail = [Unauthenticated("the token is not known")]
        with pytest.raises(ConfigMismatch, match=r"may not write at the gateway .*write_token_file") as refused:
            open_canary(settings(server, gateway=gateway.address))
    assert refused.value.reason == "canary_write"


def test_a_server_that_is_away_is_waited_for(server: FakeServer) -> None:
    with pytest.raises(Unavailable, match=r"querier 127.0.0.1:1: nothing listens"):
        open_canary(settings(server, querier="127.0.0.1:1"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"querier": "h:0"}, "no port to connect to"),
        ({"write_token": "t"}, "write_token must not be given in a flag"),
        ({"target_tls_ca_file": "/ca"}, "need target_tls"),
        ({"target_tls": "true", "target_tls_cert_file": "/c"}, "go together"),
        ({"canary_series": 65}, "canary_series"),
        ({"canary_period_s": 0.05}, "canary_period_s"),
        ({"canary_name": 'a"b'}, "canary_name"),
    ],
)
def test_settings_that_do_not_fit_are_refused(server: FakeServer, given: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        settings(server, **given)


def test_a_token_file_that_cannot_be_read_is_refused_by_name(server: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigMismatch, match="read_token_file"):
        open_canary(settings(server, read_token_file=str(tmp_path / "none")))
