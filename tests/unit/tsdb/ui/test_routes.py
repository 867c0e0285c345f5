"""The server's side of the pages: policy, sign-in, files, refusals, and a link that opens."""

from __future__ import annotations

import gzip
import html
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.api.prometheus_server import NOW_MS
from support.api.ui_server import UiServer, ui_server
from support.counters import sample
from support.servers.logs import wait_until
from tsdb.api.prometheus.api import PAGE_THREADS
from tsdb.api.prometheus.call import ApiOptions
from tsdb.ops.auth import Tokens
from tsdb.ui.headers import POLICY
from tsdb.ui.sources import UiOptions

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x00'
COOKIE = "tsdb_token=good; Path=/; Max-Age=604800; HttpOnly; SameSite=Lax"


@pytest.fixture(scope="module")
def served() -> Iterator[UiServer]:
    with ui_server() as server:
        yield server


@pytest.fixture(scope="module")
def guarded() -> Iterator[UiServer]:
    with ui_server(UiOptions(has_tokens=True), tokens=Tokens(text="good")) as server:
        yield server


def test_the_policy_names_no_other_site_and_no_inline_script() -> None:
    directives = dict(part.split(" ", 1) for part in POLICY.split("; "))
    assert directives["script-src"] == "'self'"
    assert directives["default-src"] == directives["base-uri"] == directives["frame-ancestors"] == "'none'"
    assert "http" not in POLICY
    assert "*" not in POLICY


@pytest.mark.parametrize(
    "path", ["/", "/graph", "/?v=9", "/ui/figure?theme=dark", "/ui/figure?theme=pink", "/ui/graph"]
)
def test_each_answer_has_the_policy_and_is_not_kept(served: UiServer, path: str) -> None:
    headers = served.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_the_html_has_no_inline_script_and_no_other_site(served: UiServer) -> None:
    text = served.get("/").body.decode()
    assert re.findall(r"<script(?![^>]* src=\"/ui/files/)", text) == []
    assert re.findall(r"(?:src|href)=\"(?!/)", text.replace('href="#main"', "")) == []
    assert re.findall(r"\son\w+=", text) == []


def test_text_of_a_link_is_text_in_the_page(served: UiServer) -> None:
    got = served.get("/", **{"v": HOSTILE, "p0.q": HOSTILE, "range": HOSTILE})
    text = got.body.decode()
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    view = json.loads(html.unescape(re.findall(r'data-view="([^"]*)"', text)[0]))
    assert view["panels"][0]["query"] == HOSTILE


def test_files_are_kept_by_the_hash_in_their_url(served: UiServer) -> None:
    text = served.get("/").body.decode()
    urls = re.findall(r"/ui/files/[^\"]+", text)
    assert {url.split("?")[0] for url in urls} >= {"/ui/files/bokeh.js", "/ui/files/explorer.js", "/ui/files/style.css"}
    for url in urls:
        plain, packed = served.get(url), served.get(url, {"accept-encoding": "gzip"})
        assert plain.status == 200
        assert "immutable" in plain.headers["cache-control"]
        assert gzip.decompress(packed.body) == plain.body
    assert served.get("/ui/files/style.css").headers["cache-control"] == "no-cache"


def test_a_file_that_a_browser_has_is_not_sent_again(served: UiServer) -> None:
    tag = served.get("/ui/files/panel.js").headers["etag"]
    got = served.get("/ui/files/panel.js", {"if-none-match": tag})
    assert (got.status, got.body) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/ui/files/", "/ui/files/../headers.py", "/ui/files/%2e%2e/headers.py", "/ui/files/x.js"]
)
def test_other_files_are_not_there(served: UiServer, path: str) -> None:
    assert served.get(path).status == 404


def test_scripts_import_only_files_that_are_served(served: UiServer) -> None:
    seen, waiting = set(), ["explorer.js", "theme.js", "sign-in.js"]
    while waiting:
        name = waiting.pop()
        seen.add(name)
        got = served.get(f"/ui/files/{name}")
        assert got.status == 200, name
        text = got.body.decode()
        assert not re.search(
            r"https?://(?!www\.w3\.org/2000/svg)|\beval\(|innerHTML|new Function|insertAdjacentHTML", text
        ), name
        waiting += set(re.findall(r'from "\./([\w-]+\.js)"', text)) - seen


def test_without_a_token_a_page_is_the_form_for_one(guarded: UiServer) -> None:
    got = guarded.get("/")
    assert (got.status, got.headers["content-security-policy"]) == (401, POLICY)
    assert 'id="sign-in"' in got.body.decode()
    assert guarded.get("/ui/files/sign-in.js").status == 200


def test_a_valid_token_signs_in_and_its_cookie_opens_pages(guarded: UiServer) -> None:
    got = guarded.ask("/ui/sign-in", {"authorization": "Bearer good"})
    assert (got.status, got.headers["set-cookie"]) == (200, COOKIE)
    cookie = {"cookie": "other=1; tsdb_token=good"}
    assert "Sign out" in guarded.get("/", cookie).body.decode()
    assert guarded.ask("/ui/graph", cookie, query="up", range="5m").status == 200
    assert guarded.ask("/ui/sign-out", cookie).headers["set-cookie"].startswith("tsdb_token=; Path=/; Max-Age=0")


@pytest.mark.parametrize("headers", [{}, {"cookie": "tsdb_token=old"}, {"cookie": "tsdb_token="}, {"cookie": ";;=,"}])
def test_a_wrong_or_expired_token_is_refused_in_plain_words(guarded: UiServer, headers: dict[str, str]) -> None:
    got = guarded.ask("/ui/graph", headers, query="up", range="5m")
    assert got.status == 401
    assert got.json["error"] == "You are not signed in, or the token is no longer valid here."
    assert "set-cookie" not in got.headers


def test_the_cookie_is_no_credential_of_the_api(guarded: UiServer) -> None:
    assert guarded.get("/api/v1/query?query=up", {"cookie": "tsdb_token=good"}).status == 401


def test_each_legal_token_comes_back_from_its_cookie() -> None:
    token = "aZ09._~+/-=="
    with ui_server(tokens=Tokens(text=token)) as server:
        kept = server.ask("/ui/sign-in", {"authorization": f"Bearer {token}"}).headers["set-cookie"]
        assert server.get("/", {"cookie": kept.partition(";")[0]}).status == 200


def test_with_tls_the_cookie_travels_with_tls_alone() -> None:
    with ui_server(UiOptions(is_secure=True), tokens=Tokens(text="good")) as server:
        got = server.ask("/ui/sign-in", {"authorization": "Bearer good"})
    assert got.headers["set-cookie"] == COOKIE + "; Secure"


def test_requests_of_other_sites_are_refused_and_links_are_followed(served: UiServer) -> None:
    other = {"sec-fetch-site": "cross-site"}
    assert served.ask("/ui/graph", other, query="up", range="5m").status == 400
    assert served.get("/ui/figure", other).status == 400
    assert served.get("/", {**other, "sec-fetch-mode": "navigate"}).status == 200


def test_a_wrong_method_is_named(served: UiServer) -> None:
    got = served.get("/ui/graph")
    assert (got.status, got.headers["allow"], got.json["error"]) == (
        405,
        "POST",
        "method GET is not allowed; send POST",
    )


@pytest.mark.slow
def test_a_process_without_visitors_imports_no_library_of_the_pages() -> None:
    program = (
        "import sys, tsdb.roles.standalone, tsdb.roles.querier;"
        "print([name for name in ('bokeh', 'jinja2', 'tornado') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_queries_of_many_pages_wait_for_one_another_and_other_queries_do_not() -> None:
    began = sample("tsdb_query_requests_total", kind="page")
    with (
        ui_server(api_options=ApiOptions(running_max=1)) as server,
        ThreadPoolExecutor(2 * PAGE_THREADS) as browsers,
    ):
        server.api.samples.add({"__name__": "up"}, [(NOW_MS, 1.0)])
        server.api.samples.gate = gate = threading.Event()
        pages = [browsers.submit(server.ask, "/ui/graph", query="up", range="5m") for _ in range(2 * PAGE_THREADS)]
        wait_until(lambda: sample("tsdb_query_waiting") == PAGE_THREADS)
        wait_until(lambda: sample("tsdb_query_requests_total", kind="page") >= began + PAGE_THREADS)
        assert server.api.get("query", query="1 + 1").status == 200
        assert sample("tsdb_query_requests_total", kind="page") == began + PAGE_THREADS
        gate.set()
        assert [page.result(60.0).status for page in pages] == [200] * len(pages)
