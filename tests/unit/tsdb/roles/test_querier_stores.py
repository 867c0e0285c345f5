"""A querier finds its stores by names, checks TLS by the name and not the address, and sends a token. Contradictory
settings are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stack.ports import Ports
from support.fakes.fake_reader import FakeServer
from support.rollout.black_hole import BlackHole
from support.servers.certificates import Authority
from support.servers.queriers import Context
from tsdb.answer.spec import LabelsSpec
from tsdb.config import QuerierSettings, load
from tsdb.model.errors import ConfigMismatch, InvalidRequest, Unavailable, worth_retrying
from tsdb.ops.tls import ServerTls
from tsdb.query.stores.pool import StoreAddress
from tsdb.query.stores.remote import RemoteStore
from tsdb.roles.querier import store_addresses, store_opener

TOKEN = "a-token-of-stores"
CALLER_S = 15.0  # gRPC alone gives an attempt to connect 20 s, and the call would end with its caller.


def settings(**given: Any) -> QuerierSettings:
    return load(QuerierSettings, {"log": "sqlite:///x", "stores": "stores.test:7410", **given})


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.in_folder(tmp_path / "ca")


@pytest.fixture
def secure(authority: Authority) -> Iterator[FakeServer]:
    """A store that has a certificate for its name alone."""
    with FakeServer(ServerTls(*authority.issue("store", "stores.test")).grpc_credentials()) as server:
        yield server


def opened(fields: QuerierSettings, server: FakeServer, name: str = "stores.test") -> RemoteStore:
    host, _, port = server.address.rpartition(":")
    address = StoreAddress(host, int(port))
    return store_opener(fields)(StoreAddress(name, address.port), address)


def test_a_store_is_known_by_the_name_in_its_certificate_and_gets_the_token(
    authority: Authority, secure: FakeServer, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    fields = settings(store_tls=True, store_tls_ca_file=authority.ca_file, store_token_file=token_file)
    store = opened(fields, secure)
    store.refresh(5.0)
    assert list(store.states()) == [0]
    assert secure.metadata[0]["authorization"] == f"Bearer {TOKEN}"
    store.close()


def test_a_store_of_another_name_or_authority_is_none_of_ours(
    authority: Authority, secure: FakeServer, tmp_path: Path
) -> None:
    stranger = Authority.in_folder(tmp_path / "stranger").ca_file
    for name, ca_file in (("other.test", authority.ca_file), ("stores.test", stranger)):
        store = opened(settings(store_tls=True, store_tls_ca_file=ca_file), secure, name)
        store.refresh(2.0)
        assert store.states() == {}
        store.close()
    assert secure.requests == []


def test_without_access_a_store_gets_none() -> None:
    with FakeServer() as server:
        store = opened(settings(), server)
        store.refresh(5.0)
        assert list(store.states()) == [0]
        assert "authorization" not in server.metadata[0]
        store.close()


def test_stores_are_named_by_host_and_port() -> None:
    fields = settings(stores="a.test:1,[::1]:2")
    assert store_addresses(fields) == [StoreAddress("a.test", 1), StoreAddress("::1", 2)]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no store": ({"stores": ""}, "at least one"),
    "no port": ({"stores": "a.test"}, "HOST:PORT"),
    "any port": ({"stores": "a.test:0"}, "no port to connect to"),
    "files without TLS": ({"store_tls_ca_file": "/ca"}, "need store_tls"),
    "certificate without key": ({"store_tls": "true", "store_tls_cert_file": "/c"}, "go together"),
}


@pytest.mark.parametrize("case", BAD)
def test_settings_that_make_no_sense_are_refused(case: str) -> None:
    given, named = BAD[case]
    with pytest.raises(InvalidRequest, match=named) as caught:
        settings(**given)
    assert caught.value.reason == "bad_setting"


def test_a_store_whose_address_answers_nothing_is_given_up_while_its_caller_still_has_time() -> None:
    with Ports(1) as ports:
        address = StoreAddress("127.0.0.1", ports.numbers[0])
        with (
            closing(BlackHole(address.host, [address.port])),
            closing(store_opener(settings())(address, address)) as store,
            pytest.raises(Unavailable) as gone,
        ):
            list(store.labels(LabelsSpec(()), Context(CALLER_S)))
        assert (gone.value.reason, worth_retrying(gone.value)) == ("unreachable", True)


def test_two_tokens_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSDB_STORE_TOKEN", TOKEN)
    with pytest.raises(InvalidRequest, match="store_token and store_token_file"):
        settings(store_token_file="/t")


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigMismatch, match="no-such-file"):
        store_opener(settings(store_token_file=tmp_path / "no-such-file"))
