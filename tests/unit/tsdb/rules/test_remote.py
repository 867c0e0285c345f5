"""A querier shows the groups of all rulers, and says which may be missing."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.api.prometheus_server import api_server
from support.rules.shown import shown_rules
from support.servers.certificates import Authority
from tsdb.model.errors import Unavailable
from tsdb.ops.auth import Tokens
from tsdb.query.stores.pool import StoreAddress
from tsdb.rules.remote import RemoteRulers, RuleGroups, RulerAccess, ask_over_http, groups_of
from tsdb.rules.view import shown_groups

NAME = StoreAddress("ruler", 7411)
PLACES = [StoreAddress(f"10.0.0.{number}", 7411) for number in range(3)]


def group(name: str, through: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"file": "f.yaml", "name": name, "rules": [], "evaluatedThrough": through}


def answer(names: Sequence[str | dict[str, Any]], others: Sequence[str]) -> bytes:
    groups = [group(one) if isinstance(one, str) else one for one in names]
    named = [{"file": "f.yaml", "name": name} for name in others]
    return json.dumps({"status": "success", "data": {"groups": groups, "otherGroups": named}}).encode()


def asked(*bodies: bytes | Exception) -> RuleGroups:
    """The groups of a querier whose rulers answer with these bodies."""

    def ask(name: StoreAddress, address: StoreAddress) -> bytes:
        body = bodies[PLACES.index(address)]
        if isinstance(body, Exception):
            raise body
        return body

    return RemoteRulers([NAME], ask, resolve=lambda _: PLACES[: len(bodies)]).groups()


def names_of(groups: RuleGroups) -> list[str]:
    return [one["name"] for one in groups.groups]


def test_groups_of_all_rulers_come_in_the_order_of_their_names() -> None:
    found = asked(answer(["c", "a"], ["b"]), answer(["b"], ["a", "c"]))
    assert (names_of(found), found.warnings, found.others) == (["a", "b", "c"], [], None)


def test_a_group_of_two_rulers_is_shown_once_by_the_one_that_is_further() -> None:
    late, far = group("a", "2026-01-01T00:00:00.5Z"), group("a", "2026-01-01T00:00:01Z")
    for bodies in ((answer([late], []), answer([far], [])), (answer([far], []), answer([late], []))):
        assert asked(*bodies).groups == [far]


def test_a_ruler_that_is_away_is_a_warning_with_the_groups_that_are_missing() -> None:
    found = asked(answer(["a"], ["b"]), ConnectionRefusedError("refused"))
    assert names_of(found) == ["a"]
    assert found.warnings == [
        "ruler 10.0.0.1:7411 does not answer, so that its groups may be missing: refused",
        "group b of f.yaml is missing: no ruler that answers has it now",
    ]


def test_a_group_that_no_ruler_has_is_a_warning() -> None:
    """It moves from one ruler to another one."""
    found = asked(answer(["a"], ["b"]), answer([], ["a", "b"]))
    assert found.warnings == ["group b of f.yaml is missing: no ruler that answers has it now"]


def test_without_any_ruler_the_answer_is_an_error() -> None:
    with pytest.raises(Unavailable, match=r"no ruler answers: ruler 10\.0\.0\.0:7411 does not answer.*refused"):
        asked(ConnectionRefusedError("refused"))

    def unknown(name: StoreAddress) -> list[StoreAddress]:
        raise OSError("no such name")

    with pytest.raises(Unavailable, match=r"rulers at ruler:7411 cannot be found.*no such name"):
        RemoteRulers([NAME], lambda *_: b"", resolve=unknown).groups()


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b'{"data": {"groups": []}}',
        b'{"data": {"groups": [1], "otherGroups": []}}',
        b'{"data": {"groups": [{"file": "f", "name": 1, "rules": []}], "otherGroups": []}}',
        b'{"data": {"groups": [{"file": "f", "name": "n"}], "otherGroups": []}}',
        b'{"data": {"groups": [], "otherGroups": [{}]}}',
        b'{"data": {"groups": [], "otherGroups": [], "alertmanagers": [1]}}',
    ],
)
def test_an_answer_of_another_server_is_a_warning(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"answer|Expecting"):
        groups_of(body)
    assert len(asked(answer(["a"], []), body).warnings) == 1


def test_rulers_are_asked_over_http_with_a_token() -> None:
    groups = shown_groups(shown_rules())
    with api_server(rule_groups=lambda: groups, rule_others=(("f.yaml", "x"),), tokens=Tokens(text="secret")) as server:
        place = StoreAddress("127.0.0.1", server.server.port)
        ask = ask_over_http(RulerAccess("secret"))
        found = RemoteRulers([place], ask).groups()
        assert found.groups == json.loads(json.dumps(groups))
        assert found.warnings == ["group x of f.yaml is missing: no ruler that answers has it now"]
        with pytest.raises(Unavailable, match="status 401"):
            RemoteRulers([place], ask_over_http(RulerAccess("other"))).groups()


def test_the_alertmanagers_of_all_rulers_are_shown() -> None:
    servers = [["http://am-1:9093", "http://am-0:9093"], ["http://am-1:9093"]]
    with ExitStack() as stack:
        rulers = [stack.enter_context(api_server(rule_others=(), alertmanagers=urls)) for urls in servers]
        places = [StoreAddress("127.0.0.1", ruler.server.port) for ruler in rulers]
        found = RemoteRulers(places, ask_over_http(RulerAccess())).groups()
    assert found.alertmanagers == ["http://am-0:9093", "http://am-1:9093"]


def test_a_querier_among_the_rulers_is_named_and_asks_nobody() -> None:
    """Its own address in its setting would make it ask itself until the time is over."""
    asked_itself: list[RuleGroups] = []
    with api_server(rule_groups=lambda: asked_itself.append(remote.groups()) or [], asks_rulers=True) as server:  # type: ignore[func-returns-value]
        remote = RemoteRulers([StoreAddress("127.0.0.1", server.server.port)], ask_over_http(RulerAccess()))
        with pytest.raises(Unavailable, match="asks rulers itself: `rulers` names rulers alone"):
            remote.groups()
    assert asked_itself == []


class OneAnswer(BaseHTTPRequestHandler):
    """A ruler with the group "a"."""

    def do_GET(self) -> None:
        body = answer(["a"], [])
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Leave the log of the test empty."""


@contextmanager
def served_with_tls(files: tuple[Path, Path]) -> Iterator[StoreAddress]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    with HTTPServer(("127.0.0.1", 0), OneAnswer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield StoreAddress("127.0.0.1", server.server_address[1])
        server.shutdown()
        thread.join()


def test_the_certificate_of_a_ruler_is_checked_for_its_name_and_not_for_its_address(tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path)
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with served_with_tls(authority.issue("ruler", "ruler.test")) as address:
        ask = ask_over_http(RulerAccess(tls=context))

        def groups(name: str) -> RuleGroups:
            return RemoteRulers([StoreAddress(name, address.port)], ask, resolve=lambda _: [address]).groups()

        assert names_of(groups("ruler.test")) == ["a"]
        with pytest.raises(Unavailable, match="certificate verify failed"):
            groups("other.test")
