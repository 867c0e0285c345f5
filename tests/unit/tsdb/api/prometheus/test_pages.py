"""Pages of text and status answer, missing pages are refused, and all check methods, origins and encodings."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import zstandard

from support.api.prometheus_server import ApiServer, api_server
from tsdb.api.prometheus.answer import accepted_encoding
from tsdb.api.prometheus.call import ApiOptions
from tsdb.api.prometheus.pages.syntax import FORMATTED_CHARS_MAX
from tsdb.promql.evaluate.query import QueryOptions
from tsdb.promql.syntax.features import ALL_FEATURES

SELECTOR: dict[str, Any] = {
    "type": "vectorSelector",
    "name": "up",
    "offset": 0,
    "offsetExpr": None,
    "matchers": [{"name": "__name__", "value": "up", "type": "="}],
    "timestamp": None,
    "startOrEnd": None,
    "anchored": False,
    "smoothed": False,
}


def number(text: str, *, is_duration: bool) -> dict[str, Any]:
    return {"type": "numberLiteral", "val": text, "duration": is_duration}


def duration(operator: str, left: Any = None, right: Any = None, *, is_wrapped: bool = False) -> dict[str, Any]:
    return {"type": "durationExpr", "op": operator, "lhs": left, "rhs": right, "wrapped": is_wrapped}


MINUTE = number("60", is_duration=True)
PARENTHESISED = duration("+", None, MINUTE, is_wrapped=True)


@pytest.fixture(scope="module")
def served() -> Iterator[ApiServer]:
    with api_server(ApiOptions(query=QueryOptions(ALL_FEATURES))) as server:
        yield server


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("rules", {"groups": []}),
        ("rules?type=alert", {"groups": []}),
        ("alerts", {"alerts": []}),
        ("targets", {"activeTargets": [], "droppedTargets": []}),
        ("targets?state=active", {"activeTargets": [], "droppedTargets": []}),
        ("targets/metadata", []),
        ("scrape_pools", {"scrapePools": []}),
        ("alertmanagers", {"activeAlertmanagers": [], "droppedAlertmanagers": []}),
        ("query_exemplars?query=up", []),
        ("status/walreplay", {"min": 0, "max": 0, "current": 0}),
    ],
)
def test_what_is_not_here_is_empty(served: ApiServer, path: str, data: Any) -> None:
    assert served.get(path).data == data


def test_build_info_has_the_version_of_the_api(served: ApiServer) -> None:
    data = served.get("status/buildinfo").data
    assert data["version"].startswith("3.15.0+kafka-tsdb.")
    assert set(data) == {"version", "revision", "branch", "buildUser", "buildDate", "goVersion"}


def test_runtime_info_has_the_fields_of_prometheus(served: ApiServer) -> None:
    data = served.get("status/runtimeinfo").data
    assert data["serverTime"] == "2015-07-01T20:10:51.781000Z"
    assert data["reloadConfigSuccess"] is True


def test_flags_and_config_are_the_settings(served: ApiServer) -> None:
    assert served.get("status/flags").data == {
        "log": "sqlite:///x",
        "drain-s": "25.0",
        "store-tls": "false",
        "token": "",
        "names": "a,b",
    }
    assert served.get("status/config").data == {
        "yaml": 'drain_s: 25.0\nlog: "sqlite:///x"\nnames: ["a","b"]\nstore_tls: false\ntoken: null\n'
    }


def test_features_name_functions_and_settings(served: ApiServer) -> None:
    data = served.get("features").data
    assert data["promql"]["duration_expressions"] is True
    assert data["promql_functions"]["mad_over_time"] is True
    with api_server() as plain:
        data = plain.get("features").data
        assert data["promql_functions"] | {"rate": True, "mad_over_time": False} == data["promql_functions"]
        assert data["promql_operators"]["limitk"] is False


def test_a_query_is_formatted(served: ApiServer) -> None:
    assert served.get("format_query", query="sum(rate(up[5m]))by(job)").data == "sum by (job) (rate(up[5m]))"
    assert served.post("format_query", query="1+1").data == "1 + 1"


@pytest.mark.parametrize("path", ["format_query", "parse_query"])
def test_a_query_with_an_error_is_refused(served: ApiServer, path: str) -> None:
    problem = 'invalid parameter "query": 1:1: parse error: no expression found in input'
    assert served.get(path).failure == (400, "bad_data", problem)


@pytest.mark.parametrize(
    ("query", "tree"),
    [
        ("up", SELECTOR),
        ("1e-7", {"type": "numberLiteral", "val": "0.0000001"}),
        ('"a"', {"type": "stringLiteral", "val": "a"}),
        ("(up)", {"type": "parenExpr", "expr": SELECTOR}),
        ("-up", {"type": "unaryExpr", "op": "-", "expr": SELECTOR}),
        ("up offset 1m", SELECTOR | {"offset": 60_000}),
        (
            'up{b="1", a="2"}',
            SELECTOR
            | {
                "matchers": [
                    {"name": "b", "value": "1", "type": "="},
                    {"name": "a", "value": "2", "type": "="},
                    *SELECTOR["matchers"],
                ]
            },
        ),
        ("up offset (1m)", SELECTOR | {"offsetExpr": PARENTHESISED}),
        ("up offset -(1m)", SELECTOR | {"offsetExpr": duration("-", None, PARENTHESISED)}),
        ("up offset +step()", SELECTOR | {"offsetExpr": duration("+", None, duration("step"))}),
        ("up[+step()]", SELECTOR | {"type": "matrixSelector", "range": 0, "rangeExpr": duration("step")}),
        (
            "up[min_of(step(), 1m) * 2]",
            SELECTOR
            | {
                "type": "matrixSelector",
                "range": 0,
                "rangeExpr": duration(
                    "*", duration("min_of", duration("step"), MINUTE), number("2", is_duration=False)
                ),
            },
        ),
        ("up @ 2", SELECTOR | {"timestamp": 2000}),
        ("up @ end()", SELECTOR | {"startOrEnd": "end"}),
        ("up smoothed", SELECTOR | {"smoothed": True}),
        ("up anchored", SELECTOR | {"anchored": True}),
        ("up[5m]", SELECTOR | {"type": "matrixSelector", "range": 300_000, "rangeExpr": None}),
        (
            "up[5m:1m] offset 2m",
            {
                "type": "subquery",
                "expr": SELECTOR,
                "range": 300_000,
                "rangeExpr": None,
                "offset": 120_000,
                "offsetExpr": None,
                "step": 60_000,
                "stepExpr": None,
                "timestamp": None,
                "startOrEnd": None,
            },
        ),
        (
            "topk by (job) (2, up)",
            {
                "type": "aggregation",
                "op": "topk",
                "expr": SELECTOR,
                "param": {"type": "numberLiteral", "val": "2"},
                "grouping": ["job"],
                "without": False,
            },
        ),
        (
            "round(up)",
            {
                "type": "call",
                "func": {"name": "round", "argTypes": ["vector", "scalar"], "variadic": 1, "returnType": "vector"},
                "args": [SELECTOR],
            },
        ),
        (
            "up > bool 1",
            {
                "type": "binaryExpr",
                "op": ">",
                "lhs": SELECTOR,
                "rhs": {"type": "numberLiteral", "val": "1"},
                "matching": None,
                "bool": True,
            },
        ),
        (
            "up * on (a) group_left (b) up",
            {
                "type": "binaryExpr",
                "op": "*",
                "lhs": SELECTOR,
                "rhs": SELECTOR,
                "matching": {
                    "card": "many-to-one",
                    "labels": ["a"],
                    "on": True,
                    "include": ["b"],
                    "fillValues": {"lhs": None, "rhs": None},
                },
                "bool": False,
            },
        ),
    ],
)
def test_the_tree_of_a_query(served: ApiServer, query: str, tree: Any) -> None:
    assert served.get("parse_query", query=query).data == tree


def test_the_tree_of_a_deep_query_is_shown(served: ApiServer) -> None:
    assert served.post("parse_query", query="abs(" * 200 + "up" + ")" * 200).data["type"] == "call"
    body = served.post("parse_query", query="1+" * 10_000 + "1").body
    assert body.count(b'"numberLiteral"') == 10_001


def test_functions_have_the_arguments_of_prometheus(served: ApiServer) -> None:
    function = served.get("parse_query", query='histogram_quantiles(up, "q", 1)').data["func"]
    assert function["argTypes"] == ["vector", "string", "scalar", "scalar"]
    assert function["variadic"] == 9
    assert served.get("parse_query", query='label_join(up, "a", ",")').data["func"]["variadic"] == -1


def test_a_formatted_query_has_a_bound(served: ApiServer) -> None:
    formatted = served.post("format_query", query=" + ".join(f"x{row}" for row in range(1_000))).data
    assert formatted.endswith("\n+\n  x999")
    status, kind, problem = served.post("format_query", query=" + ".join(f"x{row}" for row in range(10_000))).failure
    assert (status, kind) == (400, "bad_data")
    assert f"the formatted query has more than {FORMATTED_CHARS_MAX} characters" in problem


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "query", "GET, OPTIONS, POST"),
        ("DELETE", "series", "GET, OPTIONS, POST"),
        ("POST", "label/job/values", "GET, OPTIONS"),
        ("POST", "status/buildinfo", "GET, OPTIONS"),
    ],
)
def test_a_wrong_method_is_405(served: ApiServer, method: str, path: str, allowed: str) -> None:
    got = served.get(path, method=method)
    assert got.failure[:2] == (405, "bad_data")
    assert got.headers["allow"] == allowed


@pytest.mark.parametrize("path", ["nothing", "", "label//values", "label/job", "query/", "admin/tsdb/delete_series"])
def test_an_unknown_path_is_404(served: ApiServer, path: str) -> None:
    assert served.get(path).failure[:2] == (404, "not_found")


def test_probes_are_answered_beside_the_api(served: ApiServer) -> None:
    for path in ("/-/ready", "/-/healthy"):
        for method in ("GET", "HEAD"):
            assert served.send(method, path, None, {}).status == 200


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("query?query=1", "GET, OPTIONS, POST"),
        ("query_range?query=1", "GET, OPTIONS, POST"),
        ("labels", "GET, OPTIONS, POST"),
        ("series?match[]=up", "GET, OPTIONS, POST"),
        ("label/job/values", "GET, OPTIONS"),
        ("metadata", "GET, OPTIONS"),
        ("rules", "GET, OPTIONS"),
        ("status/buildinfo", "GET, OPTIONS"),
        ("read", "OPTIONS, POST"),
        ("/federate?match[]=up", "GET, OPTIONS"),
        ("//api/v1//query?query=1", "GET, OPTIONS, POST"),
    ],
)
def test_head_is_405_without_a_body(served: ApiServer, path: str, allowed: str) -> None:
    """As in Prometheus, which answers HEAD for its probes alone."""
    got = served.get(path, method="HEAD") if not path.startswith("/") else served.send("HEAD", path, None, {})
    assert (got.status, got.body, got.headers["allow"]) == (405, b"", allowed)


def test_options_name_what_other_origins_may(served: ApiServer) -> None:
    got = served.get("query", {"origin": "http://a"}, method="OPTIONS")
    assert (got.status, got.body) == (204, b"")
    cross = {name: value for name, value in got.headers.items() if name.startswith("access-control") or name == "vary"}
    assert cross == {
        "access-control-allow-headers": "Accept, Authorization, Content-Type, Origin",
        "access-control-allow-methods": "GET, POST, OPTIONS",
        "access-control-expose-headers": "Date",
        "access-control-allow-origin": "*",
        "vary": "Origin",
    }


@pytest.mark.parametrize("path", ["query", "read", "nothing", "label/x/values"])
def test_options_are_answered_for_each_path(served: ApiServer, path: str) -> None:
    assert served.get(path, method="OPTIONS").status == 204


@pytest.mark.parametrize("name", ["time", "timeout", "limit", "lookback_delta", "stats", "allow_holes", "allow_stale"])
@pytest.mark.parametrize("text", ["", "&"])
def test_an_optional_parameter_that_is_empty_is_absent(served: ApiServer, name: str, text: str) -> None:
    assert served.get(f"query?query=1&{name}={text}").data == served.get("query", query="1").data
    form = f"query=1&{name}={text}".encode()
    posted = served.send("POST", "/api/v1/query", form, {"content-type": "application/x-www-form-urlencoded"})
    assert posted.data == served.get("query", query="1").data


@pytest.mark.parametrize("path", ["labels", "series", "label/job/values", "metadata", "status/tsdb", "query_exemplars"])
def test_empty_bounds_of_lookups_are_absent(served: ApiServer, path: str) -> None:
    asked: dict[str, Any] = {"match[]": "up", "query": "up"}
    empty: dict[str, Any] = dict.fromkeys(("start", "end", "limit", "limit_per_metric", "metric"), "")
    assert served.get(path, **asked, **empty).data == served.get(path, **asked).data


@pytest.mark.parametrize("path", ["query?query=1", "query?query=(", "nothing"])
def test_every_answer_names_the_origin(served: ApiServer, path: str) -> None:
    assert served.get(path, {"origin": "http://a"}).headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-origin" not in served.get(path).headers


def test_origins_can_be_bounded() -> None:
    with api_server(replace(ApiOptions(), cors_origin="https://(a|b)\\.example")) as served:
        for origin, allowed in (("https://a.example", "https://a.example"), ("https://c.example", None)):
            got = served.get("query", {"origin": origin}, query="1")
            assert got.headers.get("access-control-allow-origin") == allowed


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        *(("", ""), ("identity", ""), ("br", ""), ("gzip", "gzip"), ("GZIP", "gzip"), ("deflate, gzip;q=1.0", "gzip")),
        *(("gzip, zstd", "zstd"), ("zstd;q=0, gzip", "gzip"), ("gzip; q=0", ""), ("*", "")),
    ],
)
def test_the_encoding_is_one_that_the_request_accepts(header: str, encoding: str) -> None:
    assert accepted_encoding(header) == encoding


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("steps", [1, 11_000])
def test_answers_are_compressed(served: ApiServer, encoding: str, steps: int) -> None:
    served.samples.add({"__name__": "x", "long": "y" * 1000}, [(0, 1 / 3)])
    asked: dict[str, Any] = {"query": "x + time() / 7", "start": 0, "end": steps, "step": 1, "lookback_delta": "1d"}
    got = served.get("query_range", {"accept-encoding": encoding}, **asked)
    assert got.headers["content-encoding"] == encoding
    if encoding == "gzip":
        whole = gzip.decompress(got.body)
    else:
        whole = zstandard.ZstdDecompressor().decompressobj().decompress(got.body)
    assert whole == served.get("query_range", **asked).body


def test_a_large_url_is_refused_and_the_server_lives(served: ApiServer) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=60)) as connection:
        connection.request("GET", "/api/v1/query?query=" + "x" * 100_000)
        answer = connection.getresponse()
        assert (answer.status, b"http_url_bytes_max" in answer.read()) == (414, True)
    assert served.get("query", query="1").status == 200


def test_dashboards_query_by_url_with_48_kb(served: ApiServer) -> None:
    assert served.get("query", query="1" + " " * 48_000).status == 200


@pytest.mark.parametrize("path", ["//api/v1/query?query=1", "/api//v1/query?query=1", "//api/v1//label///x//values"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_doubled_slashes_are_one(served: ApiServer, path: str, method: str) -> None:
    assert served.send(method, path, None, {}).status == (204 if method == "OPTIONS" else 200)
