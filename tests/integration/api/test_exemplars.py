"""Exemplars of a standalone process beside those of a real Prometheus that gets the same writes.

Debian's Prometheus, 2.42, takes remote write 1.0. The newest one, which is built from its module, also takes remote
write 2.0 and OTLP, and scrapes the page that `tsdb agent` scrapes: that comparison is marked `soak`.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from stack.ports import Ports
from support.data.otlp_requests import attributes, export_request
from support.promql.differential.prometheus import UPSTREAM
from support.senders.go_senders import built
from support.senders.prometheus import binary
from support.senders.remote_write import WithExemplars, exemplars_1, exemplars_2, snappy
from support.servers.logs import wait_until
from support.servers.processes import TSDB, Role

V1, V2 = "application/x-protobuf", "application/x-protobuf;proto=io.prometheus.write.v2.Request"
STARTS_WITHIN_S = 60.0
NS_PER_MS = 1_000_000

pytestmark = pytest.mark.timeout(600)  # The start of a process loads or compiles all kernels.

Labels = Mapping[str, str]
Exemplar = tuple[int, float, Labels]


@dataclass(frozen=True)
class Pair:
    """Our process and a real Prometheus: address of each."""

    ours: str
    theirs: str
    role: Role
    page: str

    def post(self, paths: tuple[str, str], body: bytes, **headers: str) -> tuple[int, int]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return (_post(self.ours, paths[0], body, named), _post(self.theirs, paths[1], body, named))

    def ask(self, query: str, **times: Any) -> tuple[bytes, bytes]:
        more = "".join(f"&{name}={value}" for name, value in times.items())
        path = f"/api/v1/query_exemplars?query={quote(query)}{more}"
        return _get(self.ours, path), _get(self.theirs, path)


def _post(address: str, path: str, body: bytes, headers: Mapping[str, str]) -> int:
    with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        answer.read()
        return answer.status


def _get(address: str, path: str) -> bytes:
    with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read()


@contextmanager
def prometheus(program: str, scratch: Path, page: str, *options: str) -> Iterator[str]:
    """The address of a server that keeps exemplars and scrapes a page."""
    config, log = scratch / "exemplars.yml", scratch / "exemplars.log"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: page, static_configs: [{{targets: ['{page}']}}]}}]\n"
    )
    with Ports(1) as ports, log.open("wb") as output:
        address = f"127.0.0.1:{ports.numbers[0]}"
        command = [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={scratch}/exemplars",
            f"--web.listen-address={address}",
            "--web.enable-remote-write-receiver",
            "--enable-feature=exemplar-storage",
            *options,
        ]
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            wait_until(lambda: _is_ready(address), STARTS_WITHIN_S)
            yield address
        finally:
            process.kill()
            process.wait()


def _is_ready(address: str) -> bool:
    try:
        return _get(address, "/-/ready").startswith(b"Prometheus")
    except OSError:
        return False


@contextmanager
def page_server(page: bytes) -> Iterator[str]:
    """The address of a target with one page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/openmetrics-text; version=1.0.0")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


PAGE = b"""# TYPE a counter
a_total{x="1"} 3 # {trace_id="one"} 0.5 1600000000.125
a_total{x="2"} 3 # {} 1 1600000000
# TYPE h histogram
h_bucket{le="1"} 1 # {trace_id="low",span_id="s"} 0.25 1600000001
h_bucket{le="+Inf"} 2 # {trace_id="high"} 1e9 1600000002.5
h_count 2
h_sum 3
# TYPE long counter
long_total 1 # {a="LONG"} 1 1600000003
# TYPE same counter
same_total 1 # {trace_id="again"} 1
# EOF
""".replace(b"LONG", b"x" * 128)


@contextmanager
def pair_of(program: str, scratch: Path, *options: str) -> Iterator[Pair]:
    with ExitStack() as stack:
        page = stack.enter_context(page_server(PAGE))
        theirs = stack.enter_context(prometheus(program, scratch, page, *options))
        ours = stack.enter_context(Role(scratch, "standalone", "--data-dir", str(scratch / "data")))
        yield Pair(ours.http, theirs, ours, page)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair_of(binary("prometheus"), tmp_path_factory.mktemp("exemplars")) as found:
        yield found


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    scratch = tmp_path_factory.mktemp("exemplars-newest")
    options = (
        "--web.enable-otlp-receiver",
        "--web.remote-write-receiver.accepted-protobuf-messages=prometheus.WriteRequest",
        "--web.remote-write-receiver.accepted-protobuf-messages=io.prometheus.write.v2.Request",
    )
    with pair_of(str(built(UPSTREAM)), scratch, *options) as found:
        yield found


def one(*series: WithExemplars) -> bytes:
    return snappy(exemplars_1(*series))


def two(*series: WithExemplars) -> bytes:
    return snappy(exemplars_2(*series))


def requests(prefix: str, now_ms: int, *, newest: bool, alone: bool) -> list[list[WithExemplars]]:
    """Requests one after another, with exemplars of every kind. Names begin with `prefix`. alone: also entries with
    exemplars alone, which Prometheus refuses in version 2.0, though it sends them. newest: also exemplars
    that Debian's Prometheus treats in another way: of several with one time it keeps the first alone, and it takes
    those that are far ahead."""

    def name(which: str, **labels: str) -> Labels:
        return {"__name__": f"{prefix}_{which}", "job": "j", **labels}

    sample = [(now_ms, 1.0)]
    floats = [1e21, 1e-7, 123456.789, -0.0, float("inf"), float("-inf"), 1 / 3, 5e-324]
    only_newest: list[list[WithExemplars]] = [
        [(name("equal"), sample, [(60, value, {"t": "x"}) for value in (1.0, 1.0, 0.5, 2.0)])],
        [(name("nan"), sample, [(1, float("nan"), {}), (1, float("nan"), {})])],
        [(name("ahead"), sample, [(now_ms + 10**9, 1.0, {"t": "ahead"})])],
    ]
    only_alone: list[list[WithExemplars]] = [
        [(name("apart"), sample, []), (name("apart"), [], [(now_ms, 1.0, {"t": "1"})])],
        [(name("apart"), [], [(now_ms + 5, 1.0, {"t": "2"})])],
        [(name("unknown"), [], [(now_ms, 1.0, {"t": "1"})]), (name("known"), sample, [])],
    ]
    return [
        *(only_newest if newest else ()),
        *(only_alone if alone else ()),
        [(name("plain"), sample, [(now_ms, 0.25, {"trace_id": "a", "span_id": "b"})])],
        [(name("plain"), [(now_ms + 1, 1.0)], [(now_ms + 1, 0.5, {})])],
        [(name("times"), sample, [(at, 1.0, {"t": str(at)}) for at in (50, 40, 60, 60)])],
        [(name("times"), [(now_ms + 1, 1.0)], [(at, value, {"t": "x"}) for at, value in ((10, 9.0), (70, 1.0))])],
        [(name("again"), sample, [(5, 1.0, {"t": "1"}), (5, 1.0, {"t": "1"}), (6, 1.0, {"t": "1"})])],
        [(name("zeros"), sample, [(0, 0.0, {})])],
        [(name("negative"), sample, [(-1500, 1.0, {"t": "before 1970"})])],
        [(name("long"), sample, [(now_ms, 1.0, {"a": "x" * 10_000}), (now_ms + 1, 1.0, {"ab": "x" * 127})])],
        [(name("fits"), sample, [(now_ms, 1.0, {"a": "x" * 127}), (now_ms + 1, 1.0, {"a": "日" * 127})])],
        [(name("order", x="2"), sample, [(1, 1.0, {"z": "1", "a": "2", "é": '"\\\n'})])],
        [(name("order", x="10"), sample, [(1, 1.0, {})]), (name("order"), sample, [(1, 1.0, {})])],
        [(name("floats"), sample, [(at, value, {}) for at, value in enumerate(floats, start=1)])],
        [(name("last"), sample, [(now_ms, 1.0, {})])],
    ]  # fmt: skip


def compared_text(pair: Pair, query: str, **times: Any) -> bytes:
    ours, theirs = pair.ask(query, **times)
    assert ours == theirs, f"{query} {times}\nours:   {ours.decode()}\ntheirs: {theirs.decode()}"
    return ours


def compared(pair: Pair, query: str, **times: Any) -> list[Any]:
    found: list[Any] = json.loads(compared_text(pair, query, **times))["data"]
    return found


def check_remote_write(pair: Pair, prefix: str, content_type: str, *, newest: bool = True) -> None:
    now_ms = time.time_ns() // NS_PER_MS
    make = two if content_type == V2 else one
    for series in requests(prefix, now_ms, newest=newest, alone=content_type == V1):
        ours, _ = pair.post(("/api/v1/write",) * 2, make(*series), content_type=content_type, content_encoding="snappy")
        assert ours == 204
    wait_until(lambda: len(json.loads(pair.ask(f"{prefix}_last")[0])["data"]) == 1, 30.0)
    every = f'{{__name__=~"{prefix}_.*"}}'
    assert len(compared(pair, every)) == 11 + 2 * newest + (content_type == V1)
    for query, times in (
        (f"rate({prefix}_plain[5m]) + sum({prefix}_apart)", {}),
        (every, {"start": 0.05, "end": 0.06}),
        (every, {"start": now_ms / 1000, "end": now_ms / 1000}),
        (every, {"start": now_ms / 1000 + 2}),
        (every, {"end": 1}),
        (f"{prefix}_nothing", {}),
        (f"{prefix}_plain offset 5m", {}),
    ):
        compared(pair, query, **times)
    assert compared_text(pair, "1 + 1") == b""
    assert json.loads(compared_text(pair, "up", start=2, end=1))["errorType"] == "bad_data"
    assert json.loads(compared_text(pair, "(up"))["errorType"] == "bad_data"


def check_page(pair: Pair) -> None:
    def of_page(answer: bytes) -> list[Any]:
        rows: list[Any] = json.loads(answer)["data"]
        for row in rows:
            if row["seriesLabels"]["__name__"] == "same_total":  # Its exemplar has the time of the first scrape.
                row["exemplars"] = [one | {"timestamp": 0} for one in row["exemplars"]]
        return rows

    scrape = f"page=http://{pair.page}/metrics"
    agent = [*TSDB, "agent", "--address", pair.role.grpc, "--scrape", scrape, "--duration", "3s"]
    subprocess.run(agent, check=True, capture_output=True, timeout=120)
    wait_until(lambda: all(len(of_page(answer)) == 5 for answer in pair.ask('{job="page"}')), 30.0)
    ours, theirs = map(of_page, pair.ask('{job="page"}'))
    assert ours == theirs
    assert [len(row["exemplars"]) for row in ours] == [1] * 5


def test_remote_write_is_answered_as_by_debians_prometheus_also_after_a_kill(pair: Pair) -> None:
    check_remote_write(pair, "one", V1, newest=False)
    pair.role.kill()
    pair.role.start()
    assert compared(pair, '{__name__=~"one_.*"}')


@pytest.mark.soak
def test_the_newest_prometheus_answers_the_same(newest: Pair) -> None:
    check_remote_write(newest, "one", V1)
    check_remote_write(newest, "two", V2)
    check_page(newest)
    check_otlp(newest)


def check_otlp(pair: Pair) -> None:
    now_ns = time.time_ns()
    ids = {"trace_id": bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e4736"), "span_id": bytes.fromhex("00f067aa0ba902b7")}

    def exemplar(value: float, **fields: Any) -> pb.Exemplar:
        return pb.Exemplar(time_unix_nano=now_ns, **({"as_double": value} | ids | fields))

    filtered = attributes({"user": "me", "n": 3, "ok": True, "part": 0.5})
    long = attributes({"a": "x" * 100})
    numbers = [exemplar(0.25, filtered_attributes=filtered), exemplar(0.5, filtered_attributes=long)]
    numbers += [exemplar(0.75, trace_id=bytes(16), span_id=b""), exemplar(1.0, as_int=7)]
    cumulative = pb.AGGREGATION_TEMPORALITY_CUMULATIVE
    number = pb.NumberDataPoint(time_unix_nano=now_ns, as_double=1.0, exemplars=numbers)
    buckets = [exemplar(value) for value in (0.5, 1.0, 1.5, 2.5, 9.0)]
    histogram = pb.HistogramDataPoint(
        time_unix_nano=now_ns, count=3, sum=4, explicit_bounds=[1.0, 2.5], bucket_counts=[1, 1, 1], exemplars=buckets
    )
    request = export_request(
        pb.Metric(
            name="otlp_sum",
            sum=pb.Sum(data_points=[number], aggregation_temporality=cumulative, is_monotonic=True),
        ),
        pb.Metric(name="otlp_up_down", sum=pb.Sum(data_points=[number], aggregation_temporality=cumulative)),
        pb.Metric(name="otlp_gauge", gauge=pb.Gauge(data_points=[number])),
        pb.Metric(
            name="otlp_h", histogram=pb.Histogram(data_points=[histogram], aggregation_temporality=cumulative)
        ),
    )  # fmt: skip
    paths = "/v1/metrics", "/api/v1/otlp/v1/metrics"
    statuses = pair.post(paths, request.SerializeToString(), content_type="application/x-protobuf")
    assert statuses == (200, 200)
    wait_until(lambda: len(json.loads(pair.ask('{__name__=~"otlp_h.*"}')[0])["data"]) == 3, 30.0)
    assert compared(pair, '{__name__=~"otlp_.*",__name__!="otlp_gauge"}')
    # Prometheus drops those of gauges.
    ours, theirs = (json.loads(answer)["data"] for answer in pair.ask("otlp_gauge"))
    assert ([len(row["exemplars"]) for row in ours], theirs) == ([4], [])
