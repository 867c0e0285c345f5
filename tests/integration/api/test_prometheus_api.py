"""The Prometheus API of a standalone process beside a real Prometheus, and as promtool asks it."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pyarrow.parquet as pq
import pytest

from support.senders.prometheus import binary
from support.senders.prometheus_server import prometheus_server
from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_json

NODE = Path(__file__).resolve().parents[3] / "tests" / "data" / "node_5s.parquet"
FORM = {"content-type": "application/x-www-form-urlencoded"}

pytestmark = pytest.mark.timeout(600)  # The start of a process loads or compiles all kernels.


class Pair:
    """Our process and a real Prometheus. shift_ms: the shift of the times of the recorded data."""

    def __init__(self, ours: Role, theirs: str) -> None:
        self.ours = ours
        self.theirs = theirs
        self.shift_ms = 0

    def ask(self, method: str, url: str, body: str | None = None, **headers: str) -> tuple[Answer, Answer]:
        return tuple(  # type: ignore[return-value]  # Two addresses give two answers.
            _ask(address, method, url, body, headers) for address in (self.ours.http, self.theirs)
        )


Answer = tuple[int, dict[str, str], bytes]


def _ask(address: str, method: str, url: str, body: str | None = None, headers: dict[str, str] | None = None) -> Answer:
    with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        connection.request(method, url, body, headers or {})
        got = connection.getresponse()
        return got.status, {name.lower(): value for name, value in got.getheaders()}, got.read()


def _get(address: str, path: str, **parameters: Any) -> Any:
    status, _, body = _ask(address, "GET", f"/api/v1/{path}?{urlencode(parameters, doseq=True)}")
    answer = json.loads(body)
    assert (status, answer["status"]) == (200, "success"), body
    return answer["data"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    scratch = tmp_path_factory.mktemp("prometheus-api")
    with ExitStack() as stack:
        theirs = stack.enter_context(prometheus_server(scratch))
        as_theirs = ("--enable-feature", "promql-duration-expr", "--cors-origin", ".*")
        role = Role(scratch, "standalone", "--data-dir", str(scratch / "data"), *as_theirs)
        ours = stack.enter_context(role)
        pair = Pair(ours, theirs)
        written = tsdb_json("write", str(NODE), "--address", ours.grpc, "--shift-to-now")
        pair.shift_ms = int(written["shift_ms"])
        wait_until(lambda: len(_get(ours.http, "label/__name__/values")) > 280, 60.0)
        yield pair


@pytest.mark.parametrize(
    "query",
    [
        *("1", "1.5", "1e-7", "1e21", "-0", "NaN", "Inf", "-Inf", "123456.789", "0x1F"),
        *('"a"', '"a\\nb\\u00e9\\u0001"', "vector(1)", "vector(1e-7)", "vector(1e21)", "vector(5e-324)", "vector(-0)"),
        *("vector(1e-6)", "vector(123456.789)", "vector(0.1+0.2)", "vector(1/3)", "vector(NaN)", "vector(1/0)"),
        *("time()", "absent(x)", "pi()", "vector(1) == 2", "nothing", "nothing[5m]", "sum(nothing)"),
        'label_replace(vector(1), "a", "b c", "", "")',
        'label_replace(label_replace(vector(7), "zz", "é", "", ""), "aa", "\\"", "", "")',
    ],
)
@pytest.mark.parametrize("at", ["1.5", "0", "-1.25", "1435781451.781", "2015-07-01T20:10:51.781Z"])
def test_instant_answers_are_byte_equal(pair: Pair, query: str, at: str) -> None:
    ours, theirs = pair.ask("GET", f"/api/v1/query?query={quote(query)}&time={at}")
    assert (ours[0], ours[2]) == (theirs[0], theirs[2])
    assert ours[1]["content-type"] == theirs[1]["content-type"]


@pytest.mark.parametrize("query", ["1", "vector(1/3)", "time()", "time() / 7", "vector(1) > 2", "-time() * 1e19"])
@pytest.mark.parametrize("steps", ["start=0&end=0&step=1", "start=-2&end=3&step=0.25", "start=1.25&end=90&step=1m"])
def test_range_answers_are_byte_equal(pair: Pair, query: str, steps: str) -> None:
    ours, theirs = pair.ask("GET", f"/api/v1/query_range?query={quote(query)}&{steps}")
    assert (ours[0], ours[2]) == (theirs[0], theirs[2])


# Prometheus 3 has other words in these places than 2.42, with which the answers are compared.
NEWER = (
    ("Invalid time value for", "invalid time value for"),
    ('"error":"invalid expression type', '"error":"invalid parameter \\"query\\": invalid expression type'),
)


@pytest.mark.parametrize(
    "url",
    [
        *("query?time=1&query=", "query?time=1", "query?query=1&time=x", "query?query=1&timeout=x"),
        *("query?time=1&query=rate(x)", "query?time=1&query=1+", "query?time=1&query=sum(x)(y)"),
        *(
            f"query_range?query=vector(1)&{steps}"
            for steps in (
                *("start=x&end=2&step=1", "start=1&end=x&step=1", "start=2&end=1&step=1", "start=1&end=2&step=x"),
                *("start=1&end=2&step=0", "start=1&end=2&step=-1", "start=1&end=2&step=", "step=1", "end=1&step=1"),
                *(
                    "start=0&end=11001&step=1",
                    "start=1&end=2&step=NaN",
                    "start=1&end=2&step=1e30",
                    "start=0&end=1&step=5x",
                ),
            )
        ),
        "query_range?query=%22a%22&start=0&end=1&step=1",
        *(
            "series",
            "series?match[]={}",
            "series?match[]=up&start=x",
            "series?match[]=up&x=%zz",
            "series?match[]=a&end=y",
        ),
        *('labels?match[]={a=""}', "labels?start=x", "label/job/values?end=x", "metadata?limit=x", "rules?type=x"),
        *("query_exemplars?query=up&start=3&end=1", "format_query?query="),
    ],
)
def test_errors_are_byte_equal(pair: Pair, url: str) -> None:
    ours, theirs = pair.ask("GET", f"/api/v1/{url}")
    wanted = theirs[2].decode()
    for older, newer in NEWER:
        wanted = wanted.replace(older, newer)
    assert (ours[0], ours[2].decode()) == (theirs[0], wanted)


@pytest.mark.parametrize(
    "url",
    [
        *("query?query=vector(0)&time=3", "series?match[]=nothing_here", "labels?match[]=nothing_here&start=1&end=2"),
        *("rules", "alerts", "targets", "alertmanagers", "query_exemplars?query=up", "status/walreplay"),
        *(
            "targets/metadata",
            "metadata?metric=nothing_here",
            "series?match[]=a&start=2&end=1",
            "format_query?query=1%2b1",
        ),
    ],
)
def test_pages_are_byte_equal(pair: Pair, url: str) -> None:
    ours, theirs = pair.ask("GET", f"/api/v1/{url}")
    assert (ours[0], ours[2]) == (theirs[0], theirs[2])


@pytest.mark.parametrize(
    ("url", "body", "headers"),
    [
        ("query?query=2", "query=1&time=1", FORM),
        ("query?query=2&time=1", "query=1;%zz&time=1", FORM),
        ("query?time=5", "query=time()", FORM),
        ("query", "query=1&time=1", {}),
        ("query", "", FORM),
        ("query_range?start=0&end=1&step=1", "query=vector(1)&start=1", FORM),
    ],
)
def test_forms_are_byte_equal(pair: Pair, url: str, body: str, headers: dict[str, str]) -> None:
    ours, theirs = pair.ask("POST", f"/api/v1/{url}", body, **headers)
    assert (ours[0], ours[2]) == (theirs[0], theirs[2])


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {}),
        ("GET", {"origin": "http://a"}),
        ("GET", {"origin": "http://a", "accept-encoding": "gzip"}),
        ("OPTIONS", {}),
        ("OPTIONS", {"origin": "http://a"}),
    ],
)
def test_headers_are_those_of_prometheus(pair: Pair, method: str, headers: dict[str, str]) -> None:
    ours, theirs = pair.ask(method, "/api/v1/query?query=1&time=1", **headers)
    ignored = {"date", "content-length"}
    assert ours[0] == theirs[0]
    assert {name: ours[1][name] for name in ours[1].keys() - ignored} == {
        name: theirs[1][name] for name in theirs[1].keys() - ignored
    }


@pytest.mark.parametrize(("method", "path"), [("PUT", "query"), ("POST", "label/a/values"), ("GET", "nothing")])
def test_a_wrong_method_or_path_has_the_same_code(pair: Pair, method: str, path: str) -> None:
    ours, theirs = pair.ask(method, f"/api/v1/{path}")
    assert ours[0] == theirs[0]


def _promtool(*arguments: str) -> str:
    done = subprocess.run([binary("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_promtool_asks_everything(pair: Pair) -> None:
    server = f"http://{pair.ours.http}"
    assert "node_load1" in _promtool("query", "instant", server, "node_load1 offset 1m")
    assert "node_load1" in _promtool("query", "range", "--step=15s", server, "node_load1")
    assert 'job="node"' in _promtool("query", "series", "--match=node_load1", server)
    assert "idle" in _promtool("query", "labels", server, "mode").splitlines()


def test_samples_come_back_bit_for_bit(pair: Pair) -> None:
    table = pq.read_table(NODE)
    wanted: dict[str, list[tuple[float, float]]] = {}
    columns = (table.column(name).to_pylist() for name in ("labels", "ts_ms", "value"))
    for labels, ts_ms, value in zip(*columns, strict=True):
        if '"__name__":"node_load' in labels.replace(" ", ""):
            wanted.setdefault(json.dumps(json.loads(labels), sort_keys=True), []).append((ts_ms, value))
    newest_s = (max(ts for samples in wanted.values() for ts, _ in samples) + pair.shift_ms) / 1000
    data = _get(pair.ours.http, "query", query='{__name__=~"node_load.*"}[2h]', time=newest_s)
    assert len(data["result"]) == len(wanted) == 3
    for series in data["result"]:
        samples = np.array(sorted(wanted[json.dumps(series["metric"], sort_keys=True)]))
        got = np.array([(round(at * 1000), float(text)) for at, text in series["values"]])
        assert (got[:, 0] == samples[:, 0] + pair.shift_ms).all()
        assert (got[:, 1] == samples[:, 1]).all()


def test_the_process_shows_its_queries_in_its_metrics(pair: Pair) -> None:
    before = pair.ours.metrics()
    _get(pair.ours.http, "query", query="node_load1")
    after = pair.ours.metrics()
    assert after['tsdb_query_requests_total{kind="query"}'] == before['tsdb_query_requests_total{kind="query"}'] + 1
    assert after['tsdb_http_requests_total{code="200",route="/api/v1/query"}'] > 0
    assert after["tsdb_query_running"] == after["tsdb_query_waiting"] == 0
