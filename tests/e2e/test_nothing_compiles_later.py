"""A role that is ready has all its kernels: no later request waits for a compiler, or for a load from the cache."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote

import numpy as np

from support.senders.remote_write import request_1, request_2, snappy
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import Client, ReadOptions, WriteBatch, connect
from tsdb.client.cardinality import KINDS
from tsdb.client.select import SelectKeywords

ROOT = Path(__file__).parents[2]
PER_REQUEST, REQUESTS = 500, 6  # Together more series than a head's first tables can have.
MINUTE_MS = 60_000
PROTO_2 = ";proto=io.prometheus.write.v2.Request"
READS: tuple[SelectKeywords, ...] = ({}, {"last_n": 1}, {"step_ms": 30_000, "agg": "avg"}, {"encoding": "columns"})


class RoleWithKernels(Role):
    """A role that answers each line on stdin with its kernels."""

    def start(self, *, ready: bool = True) -> None:
        with self.log_file.open("ab") as log:
            command = [sys.executable, str(ROOT / "tests/support/scripts/role_kernels.py"), *self.arguments]
            environment = {**self._env, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, env=environment)
        self.wait_ready()

    def kill(self) -> None:
        super().kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def kernels(self) -> set[str]:
        """Name and signature of each that it has."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"\n")
        stdin.flush()
        answer = stdout.readline()
        assert answer, self.log_file.read_text()
        return set(json.loads(answer))


def test_a_standalone_that_is_ready_has_all_its_kernels(tmp_path: Path) -> None:
    with RoleWithKernels(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), "--time-set", "demo") as role:
        wait_until(lambda: role.log_file.read_text().count("kernels ready") == 2, 60.0)
        before = role.kernels()
        with connect(role.grpc, timeout_s=60.0) as client:
            for request in range(REQUESTS):
                read(client, write(client, range(request * PER_REQUEST, (request + 1) * PER_REQUEST)))
            read(client, write(client, range(REQUESTS * PER_REQUEST)))
        write_over_http(role.http)
        ask_promql(role.http)
        wait_until(lambda: role.metrics()['tsdb_loader_records_total{kind="chunk"}'] > 0, 60.0)
        assert sorted(role.kernels() - before) == []
        assert role.terminate() == 0


def ask_promql(address: str) -> None:
    """A query of each type of result, with each kind of kernel."""
    now_s = time.time()
    for query in ("m1", "m1[1m]", "sum by (job) (rate(m1[1m]))", "topk(2, m2)", "quantile(0.5, m0)", "m1 / on (n) m1"):
        for path in (f"query?time={now_s}", f"query_range?start={now_s - 60}&end={now_s}&step=1"):
            if query == "m1[1m]" and path.startswith("query_range"):
                continue
            url = f"http://{address}/api/v1/{path}&query={quote(query)}"
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert json.loads(answer.read())["data"]["result"]


def write(client: Client, numbers: range) -> ReadOptions:
    batch, values, now_ms = WriteBatch(), np.random.default_rng(numbers.start).random(10), time.time_ns() // 1_000_000
    for number in numbers:
        labels = {"__name__": f"m{number % 3}", "job": "j", "instance": f"i{number % 7}", "n": f"{number}" * 50}
        batch.add(labels, now_ms - np.arange(10)[::-1] * 100, np.round(values, number % 5) * number)
    return ReadOptions(after=client.write(batch).tokens)


def write_over_http(address: str) -> None:
    """A request of each protocol and version, with all kinds of fields."""
    now_ms = time.time_ns() // 1_000_000
    series = [({"__name__": f"h{number}", "job": "j"}, [(now_ms, float(number))]) for number in range(PER_REQUEST)]
    for message, proto in ((request_1(series), ""), (request_2(series, (2, "help", "s")), PROTO_2)):
        message.timeseries[0].histograms.add(timestamp=now_ms, count_int=1)
        request = urllib.request.Request(f"http://{address}/api/v1/write", snappy(message))
        request.add_header("content-type", f"application/x-protobuf{proto}")
        request.add_header("content-encoding", "snappy")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 204
    line = f'cpu,job=j,n=1 a=0.1,b=1i,c=2u,d=t,e="text" {now_ms}'
    with urllib.request.urlopen(f"http://{address}/write?precision=ms", line.encode(), timeout=60) as answer:
        assert answer.status == 204


def read(client: Client, options: ReadOptions) -> None:
    now_ms = time.time_ns() // 1_000_000
    for selector in ("m1", '{job="j"}', '{instance=~"i[0-3]"}', '{job="j",n!~"1.*"}'):
        for chosen in READS:
            client.select(selector, now_ms - MINUTE_MS, now_ms + MINUTE_MS, **SelectKeywords(**chosen, options=options))
    client.series("m1")
    client.label_names()
    client.label_values("instance", "m1")
    client.series_groups("m1", ["instance"])
    for by in KINDS:
        client.cardinality(by=by)
        client.cardinality("m1", by=by)
