"""Pages of other sites are refused. Programs, our own pages and proxies are answered."""

from __future__ import annotations

import pytest

from support.counters import sample
from tsdb.model.errors import InvalidRequest
from tsdb.ops.http.sites import OTHER_HOST, OTHER_ORIGIN, Sites

LOCAL = Sites.of("127.0.0.1")
HOST = {"host": "127.0.0.1:7411"}
EVIL = "http://evil.example"


def reason(sites: Sites, method: str, headers: dict[str, str], allowed: str = "") -> str:
    """The reason of the refusal; "" for an accepted request."""
    try:
        sites.check(method, headers, lambda origin: origin == allowed)
    except InvalidRequest as error:
        return error.reason
    return ""


ACCEPTED = {
    "a program": HOST,
    "a program without Host": {},
    "a program by name": {"host": "localhost:7411"},
    "IPv6": {"host": "[::1]:7411"},
    "another address": {"host": "10.1.2.3"},
    "a name of a container": {"host": "standalone:7411"},
    "our own page": HOST | {"origin": "http://127.0.0.1:7411"},
    "our own page in capitals": {"host": "LocalHost:7411", "origin": "http://localhost:7411"},
    "the default port": {"host": "localhost", "origin": "http://localhost:80"},
    "the default port of TLS": {"host": "localhost:443", "origin": "https://localhost"},
    "our own page in a modern browser": HOST | {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:7411"},
    "a typed address": HOST | {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
    "a proxy that changes Host": HOST | {"sec-fetch-site": "same-origin", "origin": "https://metrics.example"},
    "a proxy that names Host": HOST | {"x-forwarded-host": "metrics.lan", "origin": "http://metrics.lan"},
    "our own page's referrer": HOST | {"referer": "http://127.0.0.1:7411/graph"},
}
REFUSED = {
    "another origin": (OTHER_ORIGIN, HOST | {"origin": EVIL}),
    "another port": (OTHER_ORIGIN, HOST | {"origin": "http://127.0.0.1:3000"}),
    "no origin": (OTHER_ORIGIN, HOST | {"origin": "null"}),
    "a bad origin": (OTHER_ORIGIN, HOST | {"origin": "http://[::1"}),
    "an empty origin": (OTHER_ORIGIN, HOST | {"origin": ""}),
    "a name that begins alike": (OTHER_ORIGIN, {"host": "localhost", "origin": "http://localhost.evil.example"}),
    "another site in a modern browser": (OTHER_ORIGIN, HOST | {"sec-fetch-site": "cross-site"}),
    "another port in a modern browser": (OTHER_ORIGIN, HOST | {"sec-fetch-site": "same-site"}),
    "a rebound name": (OTHER_HOST, {"host": "evil.example:7411", "origin": "http://evil.example:7411"}),
    "a rebound name without an origin": (OTHER_HOST, {"host": "evil.example"}),
    "a name that looks local": (OTHER_HOST, {"host": "127.0.0.1.evil.example"}),
}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "PUT"])
@pytest.mark.parametrize("headers", ACCEPTED.values(), ids=ACCEPTED)
def test_programs_proxies_and_our_own_pages_pass(method: str, headers: dict[str, str]) -> None:
    assert reason(LOCAL, method, headers) == ""


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "PUT"])
@pytest.mark.parametrize(("expected", "headers"), REFUSED.values(), ids=REFUSED)
def test_pages_of_other_sites_are_refused_and_counted(method: str, expected: str, headers: dict[str, str]) -> None:
    before = sample("tsdb_http_sites_refused_total", reason=expected)
    assert reason(LOCAL, method, headers) == expected
    assert sample("tsdb_http_sites_refused_total", reason=expected) == before + 1


@pytest.mark.parametrize(("method", "expected"), [("GET", ""), ("POST", OTHER_ORIGIN)])
def test_a_link_of_another_site_opens_a_page_and_a_form_writes_nothing(method: str, expected: str) -> None:
    link = HOST | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert reason(LOCAL, method, link) == expected
    assert reason(LOCAL, method, HOST | {"referer": EVIL}) == expected


def test_an_allowed_origin_passes_but_not_under_another_host() -> None:
    assert reason(LOCAL, "POST", HOST | {"origin": EVIL}, allowed=EVIL) == ""
    assert reason(LOCAL, "POST", HOST | {"origin": EVIL, "sec-fetch-site": "cross-site"}, allowed=EVIL) == ""
    assert reason(LOCAL, "POST", {"host": "evil.example", "origin": EVIL}, allowed=EVIL) == OTHER_HOST


@pytest.mark.parametrize(
    ("listen", "hosts", "host", "expected"),
    [
        ("0.0.0.0", (), "metrics.example", ""),
        ("::", (), "metrics.example", ""),
        ("0.0.0.0", ("metrics.example",), "Metrics.example:7411", ""),
        ("0.0.0.0", ("metrics.example",), "evil.example", OTHER_HOST),
        ("0.0.0.0", ("metrics.example",), "10.0.0.1:7411", ""),
        ("127.0.0.1", ("metrics.example",), "metrics.example", ""),
        ("::1", (), "evil.example", OTHER_HOST),
        ("localhost", (), "evil.example", OTHER_HOST),
    ],
)
def test_names_of_the_server(listen: str, hosts: tuple[str, ...], host: str, expected: str) -> None:
    assert reason(Sites.of(listen, hosts), "GET", {"host": host}) == expected
