"""Measures writes through a gateway process to a real broker (acks=all): latencies, and samples per CPU second of the
gateway.

A request has 1,000 series of ten sources, one sample each. Threads of this process send prepared bytes, paced for the
latencies and unpaced for the throughput, with the idempotent producer (the default) and without. The controls are the
same requests through the service over a log that answers at once, and the same bytes echoed by a plain gRPC server.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import numpy as np

from bench.gateway.sink import NoDeadline, Sink
from bench.ground import PARTITIONS, kafka_log
from bench.measure import cpu_of, median_spent, percentiles_ms, rss_mib, say
from bench.workload import Workload
from ingest.grpc import service
from ingest.limits import IngestLimits
from ingest.pipeline import WritePipeline
from stack.ports import Ports
from tsdb.log.interface import Log
from tsdb.log.topics import LOG_APPEND_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION
from tsdb.v1 import ingest_pb2

SERIES_PER_REQUEST = 1000
SOURCES = 10  # Number of different requests, sent in turn: 10,000 series in all.
WRITE = "/tsdb.v1.Ingest/Write"
ECHO = "/bench.Echo/Echo"
READY_WITHIN_S = 120.0


def main(argv: Sequence[str]) -> dict[str, object]:
    """Latencies in ms, and samples per CPU second of the gateway process alone."""
    parser = argparse.ArgumentParser(prog="bench write", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second when paced")
    parser.add_argument("--writers", type=int, default=4)
    arguments = parser.parse_args(argv)
    seconds = arguments.seconds / 10 if arguments.quick else arguments.seconds
    workload = Workload(SOURCES * SERIES_PER_REQUEST, PARTITIONS, samples=1)
    result: dict[str, object] = {"service_alone": _service_alone(workload), "echo": _echo(workload, seconds / 4)}
    with kafka_log(broker_times=LOG_APPEND_TIME) as url:
        for name, flag in (("idempotent", "--idempotence"), ("plain", "--no-idempotence")):
            with _gateway(url, flag) as gateway:
                load = _Load(gateway.address, workload, arguments.writers)
                load.run(seconds / 4, 0)  # Announces the series and warms both ends.
                result[name] = {
                    "paced": _measured(load, gateway, seconds, arguments.rate),
                    "unpaced": _measured(load, gateway, seconds, 0),
                    "rss_mib": rss_mib(gateway.pid),
                }
                say(f"{name}: {result[name]}")
    return result


@dataclass(frozen=True, slots=True)
class _Gateway:
    pid: int
    address: str


@contextmanager
def _gateway(url: str, *flags: str) -> Iterator[_Gateway]:
    """A ready `tsdb gateway` process, started by its command line."""
    ports = Ports(2)
    grpc_port, http_port = ports.numbers
    listen = ["--grpc", f"127.0.0.1:{grpc_port}", "--http", f"127.0.0.1:{http_port}", "--log-level", "warning"]
    child = subprocess.Popen([sys.executable, "-m", "tsdb.cli.main", "gateway", "--log", url, *listen, *flags])
    try:
        give_up_at = time.monotonic() + READY_WITHIN_S
        while not _ready(http_port):
            if child.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"the gateway is not ready; exit code {child.poll()}")
            time.sleep(0.1)
        yield _Gateway(child.pid, f"127.0.0.1:{grpc_port}")
    finally:
        child.terminate()
        child.wait(60)
        ports.close()


def _ready(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1) as answer:
        return bool(answer.status == 200)
    return False


@dataclass(slots=True)
class _Load:
    """Writers on one address, each with its own channel."""

    address: str
    workload: Workload
    writers: int
    _labels: list[list[bytes]] = field(init=False)

    def __post_init__(self) -> None:
        size = SERIES_PER_REQUEST
        self._labels = [self.workload.labels[start * size : (start + 1) * size] for start in range(SOURCES)]

    def run(self, seconds: float, rate: float) -> list[float]:
        """Write, and return the latency of each request in seconds. rate: requests a second of all writers; 0: as fast
        as possible.

        A paced latency starts when the request was due, so that a delayed writer does not hide the delay.

        """
        latencies: list[list[float]] = [[] for _ in range(self.writers)]
        threads = [
            threading.Thread(target=self._write, args=(writer, seconds, rate / self.writers, latencies[writer]))
            for writer in range(self.writers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [latency for some in latencies for latency in some]

    def _write(self, writer: int, seconds: float, rate: float, latencies: list[float]) -> None:
        with grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call: Any = channel.unary_unary(WRITE, bytes, bytes)
            started, number = time.perf_counter(), 0
            while (elapsed := time.perf_counter() - started) < seconds:
                due = (number + writer / self.writers) / rate if rate else elapsed
                if due > elapsed:
                    time.sleep(due - elapsed)
                began = started + due if rate else time.perf_counter()
                call(_request(self._labels[(number + writer) % SOURCES], number), timeout=30)
                latencies.append(time.perf_counter() - began)
                number += 1


def _request(labels: Sequence[bytes], number: int) -> bytes:
    now_ms = int(time.time() * 1000)
    values = np.full(len(labels), float(number))
    request = ingest_pb2.WriteRequest(
        labels=labels, ts_ms=np.full(len(labels), now_ms, "<i8").tobytes(), values=values.tobytes()
    )
    return request.SerializeToString()


def _measured(load: _Load, gateway: _Gateway, seconds: float, rate: float) -> dict[str, object]:
    cpu = cpu_of(gateway.pid)
    started = time.perf_counter()
    latencies = load.run(seconds, rate)
    samples, wall_s = len(latencies) * SERIES_PER_REQUEST, time.perf_counter() - started
    return {
        "latency_ms": percentiles_ms(latencies),
        "samples_per_s": round(samples / wall_s),
        "samples_per_gateway_cpu_s": round(samples / (cpu_of(gateway.pid) - cpu)),
    }


def _service_alone(workload: Workload) -> dict[str, float]:
    """CPU of the service alone, from request bytes to answer bytes, without gRPC and Kafka."""
    log, clock = cast(Log, Sink()), SystemClock()
    pipeline = WritePipeline(log, PlacementRule(), PARTITIONS, PRODUCTION, IngestLimits(), clock)
    context = cast(grpc.ServicerContext, NoDeadline())
    requests = [_request(workload.labels[start : start + 1000], 0) for start in range(0, len(workload.labels), 1000)]

    def write() -> None:
        for data in requests:
            service.write(pipeline, None, data, context).SerializeToString()

    cpu_s = median_spent(write, rounds=15).cpu_s / len(requests)
    return {"request_us": round(cpu_s * 1e6, 1), "samples_per_cpu_s": round(SERIES_PER_REQUEST / cpu_s)}


def _echo(workload: Workload, seconds: float) -> dict[str, object]:
    """Round trips with a request's bytes out and 500 bytes back, the size of tokens; both ends in this process."""
    handler = grpc.unary_unary_rpc_method_handler(lambda data, context: data[:500])
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    data = _request(workload.labels[:SERIES_PER_REQUEST], 0)
    latencies = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary(ECHO, bytes, bytes)
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            began = time.perf_counter()
            call(data, timeout=30)
            latencies.append(time.perf_counter() - began)
    server.stop(None)
    return {"bytes": len(data), "latency_ms": percentiles_ms(latencies)}
