"""Addresses, tokens and TLS files are checked before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsdb.client.channel import ClientTls, call_metadata, check_address
from tsdb.model.errors import InvalidRequest


@pytest.mark.parametrize("address", ["127.0.0.1:1", "store-0.store:9090", "[::1]:65535", "localhost:443"])
def test_host_and_port_are_an_address(address: str) -> None:
    assert check_address(address) == address


@pytest.mark.parametrize(
    "address", ["", "localhost", ":9090", "host:", "host:0", "host:65536", "::1:9090", "http://h:1", "a b:1", "h:1/x"]
)
def test_anything_else_is_refused_by_name(address: str) -> None:
    with pytest.raises(InvalidRequest, match="HOST:PORT") as refused:
        check_address(address)
    assert repr(address) in refused.value.message


def test_a_token_travels_as_a_bearer_token() -> None:
    assert call_metadata("s3cret==") == (("authorization", "Bearer s3cret=="),)
    assert call_metadata(None) == ()


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "naïve"])
def test_a_token_with_odd_characters_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        call_metadata(token)
    assert token == "" or token not in refused.value.message


def test_certificate_and_key_go_together() -> None:
    with pytest.raises(InvalidRequest, match="together"):
        ClientTls(cert_file=Path("cert.pem"))


def test_an_unreadable_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"ca\.pem"):
        ClientTls(ca_file=tmp_path / "ca.pem")
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(InvalidRequest, match=r"ca\.pem"):
        ClientTls(ca_file=tmp_path / "ca.pem")
