"""Native histograms beside Prometheus: CPU of their ingest by remote write 2.0, and of a quantile over all of them.

Both servers get the same requests, one sample of each series every 15 s for an hour. Then both answer
`histogram_quantile(0.99, sum by (job) (rate(h[5m])))` over that hour in turn; the answers must be equal. Series of
another name bring the samples to a million. CPU is that of the whole server, until it works no more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import urllib.parse
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from bench.chunks.histograms import BUCKETS, INTERVAL_MS, SHAPE
from bench.gateway import ingest_targets as targets
from bench.gateway.histogram_bodies import HistogramBodies, prometheus_chunk_bytes, send_histograms
from bench.gateway.ingest_targets import IngestTarget
from bench.gateway.sender_process import REMOTE_WRITE
from bench.measure import machine, say
from bench.promql.promql_clients import PromqlConnection
from bench.promql.promql_comparison import check_equal

SERIES, OTHERS, STEPS = 2_000, 2_200, 240
JOBS = 20
REQUESTS = 60  # Requests that a series counts between two samples.
QUERY = "histogram_quantile(0.99, sum by (job) (rate(h[5m])))"
REQUEST_SERIES = 2_100
ROUNDS = 7
IDLE_CORES = 0.1
SETTLE_S = 60.0
# The query reads 260 MB of histograms and needs as much again for their keys; a connection has half of this.
FLAGS = ("--native-histograms", "keep", "--answers-bytes-max", str(2 << 30))


def main(argv: Sequence[str]) -> dict[str, object]:
    """CPU seconds of a million histograms and of the query, and bytes a histogram of Prometheus's head."""
    parser = argparse.ArgumentParser(prog="bench histogram_ingest", description=__doc__)
    parser.add_argument("--prometheus", help="path of the control's binary, 3.8 or newer; default: as `bench ingest`")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the query")
    parser.add_argument("--quick", action="store_true", help="a tenth of the series, two rounds")
    arguments = parser.parse_args(argv)
    series, others, rounds = (200, 220, 2) if arguments.quick else (SERIES, OTHERS, arguments.rounds)
    end_ms = int(time.time() * 1000) // INTERVAL_MS * INTERVAL_MS
    times = [end_ms - (STEPS - 1 - step) * INTERVAL_MS for step in range(STEPS)]
    bodies = _bodies(series, others, times)
    say(f"{len(bodies)} requests of {sum(map(len, bodies)) / (series + others) / STEPS:.0f} bytes a histogram")
    binary = targets.prometheus_binary(arguments.prometheus)
    found: dict[str, dict[str, object]] = {}
    with ExitStack() as stack:
        servers = [stack.enter_context(targets.standalone(FLAGS))]
        if binary is None:
            say("no `prometheus` binary: no control")
        else:
            servers.append(stack.enter_context(targets.prometheus(binary)))
        for server in servers:
            found[server.name] = _ingest(server, bodies, (series + others) * STEPS)
        for name, figures in _queries(servers, times, rounds).items():
            found[name] |= figures
        if binary is not None:
            read = prometheus_chunk_bytes(_host(servers[-1]), "h", times[0], times[-1])
            found[servers[-1].name]["chunk_bytes"] = round(read / (series * STEPS), 2)
    return {"machine": machine(), "load_average": os.getloadavg(), "histograms": (series + others) * STEPS, **found}


def _bodies(series: int, others: int, times: Sequence[int]) -> list[bytes]:
    """All requests, in the order of their times. Requests of a series take log-normal times around its median."""
    count = series + others
    labels = [_labels("h", number) for number in range(series)] + [_labels("other", number) for number in range(others)]
    rng, index = np.random.default_rng(7), np.arange(BUCKETS)
    middle, spread = rng.uniform(20, 40, (count, 1)), rng.uniform(5, 9, (count, 1))
    share = np.exp(-0.5 * ((index - middle) / spread) ** 2)
    share /= share.sum(axis=1, keepdims=True)
    phase = rng.uniform(0, 6, (count, 1))
    mean_s = 2.0 ** (index / 8 - 2.5)
    buckets = rng.integers(0, 100 * REQUESTS, (count, BUCKETS))
    parts = [range(first, min(first + REQUEST_SERIES, count)) for first in range(0, count, REQUEST_SERIES)]
    encoders = [HistogramBodies([labels[row] for row in part], SHAPE) for part in parts]
    made = []
    for step, ts_ms in enumerate(times):
        buckets = buckets + rng.poisson(REQUESTS * (1 + 0.5 * np.sin(step / 300 + phase)) * share)
        sums = buckets @ mean_s * rng.uniform(0.99, 1.01, count)
        for part, encoder in zip(parts, encoders, strict=True):
            made.append(encoder.body(ts_ms, buckets[part.start : part.stop], sums[part.start : part.stop]))
    return made


def _labels(name: str, number: int) -> dict[str, str]:
    return {"__name__": name, "job": f"job_{number % JOBS}", "instance": f"host-{number:05d}:9100", "cluster": "main"}


def _ingest(server: IngestTarget, bodies: Sequence[bytes], histograms: int) -> dict[str, object]:
    before, began = _cpu_s(server), time.monotonic()
    send_histograms(server.addresses[REMOTE_WRITE], bodies)
    took = time.monotonic() - began
    _settle(server)
    cpu = _cpu_s(server) - before
    found: dict[str, object] = {
        "ingest_cpu_s": round(cpu, 2),
        "ingest_us_a_histogram": round(cpu / histograms * 1e6, 2),
        "ingest_s": round(took, 1),
        "rss_mib": round(sum(server.rss_mib().values())),
    }
    say(f"{server.name}: {found}")
    return found


def _settle(server: IngestTarget) -> None:
    """Wait until a server does little."""
    give_up_at, cores = time.monotonic() + SETTLE_S, 1.0
    while cores > IDLE_CORES and time.monotonic() < give_up_at:
        cpu = _cpu_s(server)
        time.sleep(1)
        cores = _cpu_s(server) - cpu


def _queries(servers: Sequence[IngestTarget], times: Sequence[int], rounds: int) -> dict[str, dict[str, object]]:
    """First and median seconds and CPU seconds of the query, asked in turn at other times in each round."""
    spent: dict[str, list[tuple[float, float]]] = {server.name: [] for server in servers}
    for number in range(rounds):
        span = {"start": times[0] / 1000 + number, "end": times[-1] / 1000, "step": INTERVAL_MS // 1000}
        path = "/api/v1/query_range?" + urllib.parse.urlencode({"query": QUERY, **span})
        answers = []
        for server in servers:
            with PromqlConnection(_host(server)) as client:
                cpu, began = _cpu_s(server), time.perf_counter()
                answers.append(client.body(path))
                spent[server.name].append((time.perf_counter() - began, _cpu_s(server) - cpu))
        assert len(answers[0]) > JOBS * STEPS, f"a short answer: {answers[0][:300]!r}"
        for other in answers[1:]:
            check_equal(answers[0], other, f"round {number}")
    found: dict[str, dict[str, object]] = {}
    for name, all_of in spent.items():
        seconds, cpu_s = zip(*all_of, strict=True)
        found[name] = {
            "query_s": {"first": round(seconds[0], 3), "median": round(statistics.median(seconds), 3)},
            "query_cpu_s": {"first": round(cpu_s[0], 2), "median": round(statistics.median(cpu_s), 2)},
        }
        say(f"{name}: {found[name]}")
    return found


def _host(server: IngestTarget) -> str:
    return server.addresses[REMOTE_WRITE].partition("/")[0]


def _cpu_s(server: IngestTarget) -> float:
    return sum(server.cpu_s().values())
