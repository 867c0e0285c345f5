"""InfluxDB's routes on a real HTTP server, from bytes to the log: what comes, the status, and what is stored."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import zstandard

from ingest.http.receiver import HttpReceiver, ReceiverLimits
from ingest.influx.lines import LineRules
from ingest.influx.protocol import influx_preparations, influx_protocols
from support.fakes.fake_log import Fault
from support.servers.gateways import NOW_MS, Bench
from tsdb.model.errors import Unavailable
from tsdb.ops.auth import Tokens
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.server import serve_ops

BYTES_MAX = 64 << 10
V1, V2 = "/write", "/api/v2/write"
LINE = b"cpu,host=a usage=1.5"


@dataclass
class Served:
    """A server with the routes, over a pipeline and a log in memory."""

    port: int
    bench: Bench

    def send(
        self, body: bytes, path: str = V2, method: str = "POST", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, headers or {})
            got = connection.getresponse()
            return got.status, got.read(), dict(got.getheaders())

    def stored(self) -> int:
        """Samples on the log."""
        return len(self.bench.log.decoded().value)


@contextlib.contextmanager
def served(tokens: Tokens | None = None) -> Iterator[Served]:
    bench = Bench()
    protocols = [*influx_protocols(LineRules(), bench.clock), *influx_preparations()]
    receiver = HttpReceiver(
        protocols, bench.pipeline.submit, lambda _: None, RequestBytes(1 << 22), ReceiverLimits(BYTES_MAX)
    )
    receiver.start()
    with serve_ops("127.0.0.1", 0, Readiness, Liveness, bodies=receiver, tokens=tokens) as server:
        yield Served(server.port, bench)
    receiver.close()
    assert receiver.join(60.0)


@pytest.fixture(scope="module")
def one() -> Iterator[Served]:
    with served() as made:
        yield made


BODIES = [
    (204, {}, LINE),
    (204, {}, b""),
    (204, {}, b"# nothing\n\n"),
    (204, {"content-type": "text/plain; charset=utf-8"}, LINE),
    (204, {"content-type": "application/x-www-form-urlencoded"}, LINE),
    (204, {"content-encoding": "gzip"}, gzip.compress(LINE, mtime=0)),
    (204, {"content-encoding": "zstd"}, zstandard.compress(LINE)),
    (204, {"content-type": "application/json"}, LINE),
    (204, {"content-type": "Application/JSON; charset=utf-8"}, LINE),
    (204, {"content-type": "application/x-protobuf"}, LINE),
    (204, {"content-type": "no type"}, LINE),
    (400, {"content-type": "application/json"}, b"{}"),
    (415, {"content-encoding": "br"}, LINE),
    (400, {"content-encoding": "gzip"}, LINE[:-4] + bytes(4)),
    (400, {"content-encoding": "gzip"}, gzip.compress(LINE, mtime=0)[:-9] + bytes(9)),
    (413, {"content-encoding": "gzip"}, gzip.compress(LINE + b" " * BYTES_MAX, mtime=0)),
    (413, {}, LINE + b" " * BYTES_MAX),
    (400, {}, b"\x00\xff\xfe"),
]


@pytest.mark.parametrize(("status", "headers", "body"), BODIES)
@pytest.mark.parametrize("path", [V1, V2])
def test_each_body_has_its_status_in_the_form_of_the_version(
    one: Served, path: str, status: int, headers: dict[str, str], body: bytes
) -> None:
    got, answer, _ = one.send(body, path, headers=headers)
    assert got == status, answer
    if status == 204:
        assert answer == b""
    else:
        assert json.loads(answer).keys() == ({"error"} if path == V1 else {"code", "message"})


def test_good_lines_of_a_bad_request_are_stored_and_named_ones_are_not(one: Served) -> None:
    before = one.stored()
    old = NOW_MS - 10 * 86_400_000
    body = b"a f=1\nbad\nb f=2 %d000000\nc,x=1 f=3,g=4" % old
    status, answer, _ = one.send(body)
    text = json.loads(answer)["message"]
    assert status == 400
    assert "line 2, byte 4: want a field: 'bad'" in text
    assert "line 3: too_old: timestamp" in text
    assert one.stored() == before + 3


def test_the_query_is_checked_before_the_lines(one: Served) -> None:
    before = one.stored()
    status, answer, _ = one.send(LINE, f"{V2}?precision=ps")
    assert status == 400
    assert "precision is 'ps'" in json.loads(answer)["message"]
    assert one.stored() == before


@pytest.mark.parametrize("path", [V1, V2, "/ping"])
def test_other_methods_are_refused(one: Served, path: str) -> None:
    assert one.send(b"", path, method="DELETE")[0] == 405


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_ping_is_204_with_a_version(one: Served, method: str) -> None:
    status, body, headers = one.send(b"", "/ping", method=method)
    assert (status, body, headers["x-influxdb-version"]) == (204, b"", "1.8.10")


@pytest.mark.parametrize(
    ("status", "query", "authorization"),
    [
        (204, "", "Token good"),
        (204, "", "Bearer good"),
        (204, "", "Basic " + base64.b64encode(b"me:good").decode()),
        (204, "?db=x&u=me&p=good", ""),
        (401, "", ""),
        (401, "", "Token bad"),
        (401, "", "Basic " + base64.b64encode(b"good:bad").decode()),
        (401, "", "Basic !"),
        (401, "?u=good&p=bad", ""),
        (401, "?p=good", "Token bad"),
    ],
)
def test_each_form_of_a_token_is_checked(status: int, query: str, authorization: str) -> None:
    with served(Tokens(text="good")) as made:
        headers = {"authorization": authorization} if authorization else {}
        got, answer, _ = made.send(LINE, V1 + query, headers=headers)
        assert got == status, answer
        assert made.stored() == (1 if status == 204 else 0)


def test_a_log_that_is_away_is_503_with_a_hint_and_the_line_can_be_sent_again() -> None:
    with served() as made:
        away = Fault(Unavailable("the broker is away", reason="unavailable"))
        made.bench.log.plan = lambda topic, partition, value: away
        status, answer, headers = made.send(LINE)
        assert (status, json.loads(answer)["code"], headers["retry-after"]) == (503, "unavailable", "1")
        made.bench.log.plan = lambda topic, partition, value: None
        assert made.send(LINE)[0] == 204
        assert made.stored() == 1


DATABASES = {"name": "databases", "columns": ["name"]}
QUERIES = [
    ("CREATE DATABASE telegraf", [{}]),
    ('create database "a;b" with duration 1d', [{}]),
    ('CREATE DATABASE "x"; SHOW DATABASES', [{}, {"series": [{**DATABASES, "values": [["_internal"]]}]}]),
    ("SHOW DATABASES;", [{"series": [{**DATABASES, "values": [["_internal"]]}]}]),
    ('CREATE RETENTION POLICY "p" ON "x" DURATION 1d REPLICATION 1', [{}]),
    ("ALTER RETENTION POLICY p ON x DEFAULT", [{}]),
    ("SHOW USERS", [{}]),
]


@pytest.mark.parametrize(("query", "results"), QUERIES)
@pytest.mark.parametrize("method", ["GET", "POST", "form"])
def test_queries_of_clients_that_prepare_their_writes_are_answered(
    one: Served, method: str, query: str, results: list[dict[str, object]]
) -> None:
    text = urllib.parse.urlencode({"q": query})
    if method == "form":
        headers = {"content-type": "application/x-www-form-urlencoded"}
        status, answer, _ = one.send(text.encode(), "/query?u=name", headers=headers)
    else:
        status, answer, _ = one.send(b"", f"/query?{text}", method=method)
    assert status == 200, answer
    found = json.loads(answer)["results"]
    assert found == [{"statement_id": number, **result} for number, result in enumerate(results)]


def test_the_database_of_a_client_is_among_those_that_are_shown(one: Served) -> None:
    _, answer, _ = one.send(b"", "/query?db=telegraf&q=SHOW+DATABASES", method="GET")
    assert json.loads(answer)["results"][0]["series"][0]["values"] == [["_internal"], ["telegraf"]]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("q=SELECT+*+FROM+cpu", "read with PromQL"),
        ("q=DROP+DATABASE+x", "'DROP DATABASE x' is not answered here"),
        ("q=CREATE+DATABASE+x%3B+DELETE+FROM+cpu", "'DELETE FROM cpu'"),
        ("", "missing required parameter"),
        ("q=", "missing required parameter"),
        ("q=" + "+".join(["SHOW"] * 100), "not answered here"),
        ("q=" + "SHOW+DATABASES%3B" * 101, "limit is 100"),
        ("&".join(f"a{number}=1" for number in range(40)), "parameters"),
    ],
)
def test_other_queries_are_refused_with_the_next_step(one: Served, query: str, says: str) -> None:
    status, answer, _ = one.send(b"", f"/query?{query}", method="GET")
    assert (status, says in json.loads(answer)["error"]) == (400, True), answer


def test_a_statement_of_many_quotes_is_read_before_its_client_gives_up(one: Served) -> None:
    body = urllib.parse.urlencode({"q": 'CREATE DATABASE "' + "\\" * 20_000}).encode()
    status, _, _ = one.send(body, "/query", headers={"content-type": "application/x-www-form-urlencoded"})
    assert status == 200


def test_health_is_that_of_influxdb(one: Served) -> None:
    status, answer, headers = one.send(b"", "/health", method="GET")
    found = json.loads(answer)
    assert (status, found["name"], found["status"]) == (200, "influxdb", "pass")
    assert headers["x-influxdb-version"] == found["version"]
