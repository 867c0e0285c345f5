"""Remote read of a standalone process: Debian's Prometheus evaluates over it, and answers the same requests itself."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import cramjam
import numpy as np
import pytest

from stack.ports import Ports
from support.api.remote_read import CHUNKS, SAMPLES, Labels, Points, Query, body, chunks_of, samples_of
from support.promql.differential.dataset import StoredSamples
from support.promql.differential.prometheus import UPSTREAM, prometheus, write
from support.senders.go_senders import built
from support.senders.prometheus import binary
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import Histogram, ReadOptions, WriteBatch, connect
from tsdb.model.stale import STALE

STEP_MS = 5_000
SAMPLES_EACH = 360
VALUES = (0.0, -0.0, 1 / 3, float("inf"), float("-inf"), 1e-300, 5.0, STALE, 5.0)
WITHIN_S = 60.0
NEGATIVE_ZERO = -(1 << 63)

pytestmark = pytest.mark.timeout(600)  # The start of a process loads or compiles all kernels.


@dataclass(frozen=True)
class Servers:
    """Addresses. peer: a Prometheus with the same samples. reader: a Prometheus that has none and reads ours.
    Samples lie from start_ms to end_ms."""

    ours: Role
    peer: str
    reader: str
    start_ms: int
    end_ms: int

    @property
    def everything(self) -> Query:
        return Query([("__name__", "=~", ".+")], self.start_ms, self.end_ms)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    scratch = tmp_path_factory.mktemp("remote-read")
    start_ms = time.time_ns() // 1_000_000 - STEP_MS * SAMPLES_EACH
    written = _series(start_ms)
    with ExitStack() as stack:
        ours = stack.enter_context(
            Role(scratch, "standalone", "--data-dir", str(scratch / "data"), "--native-histograms", "keep")
        )
        for name in ("peer", "reader"):
            (scratch / name).mkdir()
        peer = stack.enter_context(prometheus(binary("prometheus"), scratch / "peer", written, features=()))
        reader = stack.enter_context(_reader(binary("prometheus"), scratch / "reader", ours.http))
        write(ours.http, written)
        end_ms = start_ms + STEP_MS * SAMPLES_EACH
        made = Servers(ours, peer, reader, start_ms, end_ms)
        wanted = sum(len(one.samples) for one in written)
        wait_until(lambda: _count(_read(ours.http, made.everything, SAMPLES)[2]) == wanted, WITHIN_S)
        yield made


def _series(start_ms: int) -> list[StoredSamples]:
    rng = np.random.default_rng(17)
    times = [start_ms + STEP_MS * at for at in range(SAMPLES_EACH)]
    late = [at + (index * 7919) % 4000 for index, at in enumerate(times)]  # Steps of uneven length.
    floats = rng.standard_normal(SAMPLES_EACH).tolist()
    totals = np.cumsum(rng.integers(0, 100, SAMPLES_EACH)).astype(float).tolist()
    special = [VALUES[at % len(VALUES)] for at in range(SAMPLES_EACH)]
    found = [
        _stored({"__name__": "gauge", "job": "a", "instance": f"i{number}", "text": 'é<"\n>'}, times, floats)
        for number in range(200)
    ]
    found += [_stored({"__name__": "requests_total", "code": str(code)}, late, totals) for code in range(200, 220)]
    # In the order of label names and values, which is not that of their bytes joined.
    found += [
        _stored({"__name__": "special", **one}, late, special)
        for one in ({"a": "z"}, {"ab": "a"}, {"a": "z", "b": "c"})
    ]
    return found


def _stored(labels: dict[str, str], times: Sequence[int], values: Sequence[float]) -> StoredSamples:
    return StoredSamples(tuple(sorted(labels.items())), list(zip(times, values, strict=True)))


@contextmanager
def _reader(program: Path | str, folder: Path, ours: str) -> Iterator[str]:
    """A Prometheus without samples that reads those of ours."""
    config = {"remote_read": [{"url": f"http://{ours}/api/v1/read", "read_recent": True}]}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with Ports(1) as ports, (folder / "log").open("wb") as log:
        address = f"127.0.0.1:{ports.numbers[0]}"
        command = [
            str(program),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}",
        ]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: _is_ready(address), WITHIN_S)
            yield address
        finally:
            process.kill()
            process.wait()


def _is_ready(address: str) -> bool:
    try:
        return _ask(address, "GET", "/-/ready")[0] == 200
    except OSError:
        return False


def _ask(address: str, method: str, url: str, sent: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request(method, url, sent)
        got = connection.getresponse()
        return got.status, {name.lower(): value for name, value in got.getheaders()}, got.read()


def _read(address: str, query: Query, *accepted: int) -> tuple[int, dict[str, str], bytes]:
    return _ask(address, "POST", "/api/v1/read", body([query], accepted))


def _count(answer: bytes) -> int:
    return sum(len(points) for result in samples_of(answer) for points in result.values())


def _query(address: str, path: str, **parameters: Any) -> Any:
    status, _, answer = _ask(address, "GET", f"/api/v1/{path}?{urlencode(parameters)}")
    assert status == 200, answer
    result = json.loads(answer)["data"]["result"]
    return sorted(result, key=lambda row: json.dumps(row["metric"], sort_keys=True))


def _comparable(results: list[dict[Labels, Points]]) -> list[dict[Labels, Points]]:
    """Removes two differences of Prometheus's answer: series without samples, and the sign of -0."""
    return [
        {labels: [_positive(*point) for point in points] for labels, points in result.items() if points}
        for result in results
    ]


def _positive(at: int, bits: int) -> tuple[int, int]:
    return at, 0 if bits == NEGATIVE_ZERO else bits


def _queries(servers: Servers) -> list[Query]:
    middle_ms = (servers.start_ms + servers.end_ms) // 2
    return [
        servers.everything,
        Query([("__name__", "=", "special")], servers.start_ms, servers.end_ms),
        Query([("__name__", "=", "gauge"), ("instance", "=~", "i1.*")], middle_ms, middle_ms + 100 * STEP_MS),
        Query([("__name__", "!=", "gauge"), ("code", "!~", "20.|")], middle_ms, middle_ms + 1),
        Query([("__name__", "=", "gauge")], servers.end_ms, servers.end_ms),
        Query([("__name__", "=", "nothing")], servers.start_ms, servers.end_ms),
        Query([("__name__", "=", "gauge")], servers.end_ms, servers.start_ms),
        Query([("__name__", "=", "gauge")], -(1 << 63), (1 << 63) - 1),
        Query([], servers.start_ms, servers.end_ms),
    ]


def test_samples_equal_those_of_prometheus(servers: Servers) -> None:
    for query in _queries(servers):
        ours, theirs = (_read(address, query, SAMPLES) for address in (servers.ours.http, servers.peer))
        assert ours[0] == theirs[0] == 200
        for name in ("content-type", "content-encoding"):
            assert ours[1][name] == theirs[1][name]
        found, wanted = samples_of(ours[2]), samples_of(theirs[2])
        assert _comparable(found) == _comparable(wanted), query


def test_streamed_chunks_equal_those_of_prometheus(servers: Servers) -> None:
    for query in _queries(servers):
        ours, theirs = (_read(address, query, CHUNKS, SAMPLES) for address in (servers.ours.http, servers.peer))
        assert ours[0] == theirs[0] == 200
        assert ours[1]["content-type"] == theirs[1]["content-type"]
        found, wanted = chunks_of(ours[2]), chunks_of(theirs[2])
        assert found == wanted, query
        assert list(found[0]) == list(wanted[0]), "the series have another order"


@pytest.mark.parametrize(
    "sent",
    [
        *(b"", b"abc", b"\xff" * 30, bytes(cramjam.snappy.compress_raw(b"\xff\xff"))),
        *(body([], [9]), body([Query([("a", "=", "b")], 0, 1)], [5, 6])),
    ],
)
def test_refusals_are_those_of_prometheus(servers: Servers, sent: bytes) -> None:
    ours, theirs = (_ask(address, "POST", "/api/v1/read", sent) for address in (servers.ours.http, servers.peer))
    assert ours[0] == theirs[0] == 400
    for name in ("content-type", "x-content-type-options"):
        assert ours[1][name] == theirs[1][name]
    assert ours[2].split()[:3] == theirs[2].split()[:3] or ours[2].startswith(b"the body is no ReadRequest")


@pytest.mark.parametrize(
    "query",
    [
        "sum by (instance) (gauge)",
        "rate(requests_total[2m])",
        "quantile_over_time(0.9, gauge[5m])",
        "special",
        "count_over_time(special[5m])",
        'count({__name__=~".+"})',
        'requests_total{code!~"20.|21."} / ignoring(code) group_left sum(requests_total)',
        "gauge offset 3m > 1",
        "nothing",
    ],
)
def test_prometheus_evaluates_over_ours(servers: Servers, query: str) -> None:
    before = _reads(servers)
    at_s = servers.end_ms / 1000
    steps = {"query": query, "start": at_s - 900, "end": at_s, "step": 30}
    assert _query(servers.reader, "query_range", **steps) == _query(servers.peer, "query_range", **steps)
    assert _query(servers.reader, "query", query=query, time=at_s) == _query(
        servers.peer, "query", query=query, time=at_s
    )
    assert _reads(servers) > before


def test_prometheus_reads_raw_samples(servers: Servers) -> None:
    asked = {"query": '{__name__=~"special|requests.*"}[1h]', "time": servers.end_ms / 1000}
    found = _query(servers.reader, "query", **asked)
    assert found == _query(servers.peer, "query", **asked)
    assert len(found) == 23


def _reads(servers: Servers) -> float:
    return servers.ours.metrics().get('tsdb_http_requests_total{code="200",route="/api/v1/read"}', 0.0)


@pytest.mark.soak  # The first run builds Prometheus: minutes of both cores.
@pytest.mark.timeout(1800)
def test_a_prometheus_reads_native_histograms(servers: Servers, tmp_path: Path) -> None:
    at_ms = servers.end_ms + 2000  # After the samples that other tests count.
    batch = WriteBatch()
    exponential = Histogram(3, 8.5, {-20: 4, -19: 0, 2: 1}, {5: 2}, zero_count=3, zero_threshold=2.0**-128)
    custom = Histogram(sum=1.5, positive={0: 1, 3: 2}, bounds=(0.1, 0.5, 2.5))
    for kind, value in (("exponential", exponential), ("custom", custom)):
        batch.add({"__name__": "native", "kind": kind}, [at_ms - 1000, at_ms], [value, value])
    with connect(servers.ours.grpc) as client:
        written = client.write(batch)
        client.select("native", at_ms, at_ms + 1, options=ReadOptions(after=written.tokens))
    with _reader(built(UPSTREAM), tmp_path, servers.ours.http) as reader:
        for query in ("native", "native[10s]", "histogram_quantile(0.5, native)", "sum by (kind) (native)"):
            ours, theirs = (_value(address, query, at_ms) for address in (servers.ours.http, reader))
            assert ours == theirs, query
            assert len(ours) == 2, query


def _value(address: str, query: str, at_ms: int) -> Any:
    url = f"/api/v1/query?{urlencode({'query': query, 'time': at_ms / 1000})}"
    found = json.loads(_ask(address, "GET", url)[2])["data"]["result"]
    return sorted(found, key=lambda one: json.dumps(one["metric"], sort_keys=True))
