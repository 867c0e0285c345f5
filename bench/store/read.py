"""Read: Select of 600, 3,500 and 10,000 series x 240 samples out of 100,000 series, in turn over all metrics, while
150 k samples/s of other series flow into the store.

Measured to the last byte (raw frames) and to decoded arrays (the client), as COLUMNS and as RAW. The first query of a
selector is measured separately, because dashboards repeat their queries. The control is an echo server that streams
frames of the same sizes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count, cycle
from typing import Any

import grpc
from grpc.experimental import ChannelOptions

from bench.flow_process import SERIES as FLOW_SERIES
from bench.flow_process import Flow
from bench.ground import PARTITIONS, ago_ms, fill, kafka_log
from bench.measure import cpu_of, percentiles_ms, say
from bench.store.echo_process import METHOD, EchoProcess, frames_request
from bench.store_process import StoreProcess
from bench.workload import INTERVAL_MS, SAMPLES, SERIES_PER_INSTANCE, SERIES_PER_PACK, Workload
from tsdb.client import connect
from tsdb.client.select import SelectQuery
from tsdb.v1 import reader_pb2

SERIES = 100_000
SIZES = (600, 3_500, 10_000)
ENCODINGS = ("columns", "raw")
MESSAGE_BYTES_MAX = 64 << 20
SELECT = "/tsdb.v1.Reader/Select"
FAMILIES = SERIES_PER_INSTANCE // SERIES_PER_PACK
SETTLE_S = 15.0  # The broker is new, and its JVM compiles its code for that long.
# Queries of the largest size; smaller sizes run proportionally more, so that they too meet bursts of the flow.
QUERIES = 100


def main(argv: Sequence[str]) -> dict[str, object]:
    """Percentiles in ms, CPU ms of the store a query, and bytes, for each size and encoding."""
    parser = argparse.ArgumentParser(prog="bench read", description=__doc__)
    parser.add_argument("--queries", type=int, default=QUERIES, help="of the largest size, each encoding and way")
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--flow", type=int, default=FLOW_SERIES, help="samples/s that flow meanwhile")
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--quick", action="store_true", help="30 queries")
    arguments = parser.parse_args(argv)
    queries = 30 if arguments.quick else arguments.queries
    start_ms = ago_ms()
    with ExitStack() as stack:
        url = stack.enter_context(kafka_log(arguments.partitions))
        fill(url, Workload(arguments.series, arguments.partitions), start_ms)
        store = stack.enter_context(StoreProcess(url))
        store.wait_ready()
        echo = stack.enter_context(EchoProcess())
        flow = stack.enter_context(Flow(url, series=arguments.flow))
        bench = _Bench(store, echo.address, start_ms, queries)
        result = {str(size): bench.measure(size) for size in SIZES}
        idle = round(bench.idle_cores, 3)
    return {"flow": flow.wrote, "store_cores_without_queries": idle, **result}


class _Bench:
    def __init__(self, store: StoreProcess, echo_address: str, start_ms: int, queries: int) -> None:
        self._store = store
        self._range = start_ms, start_ms + SAMPLES * INTERVAL_MS
        self._queries = queries
        self._echo, self._select = _method(echo_address, METHOD), _method(store.address, SELECT)
        self._client = connect(store.address)
        self._turn = count()
        cpu, started = cpu_of(store.pid), time.monotonic()
        time.sleep(SETTLE_S)
        self.idle_cores = (cpu_of(store.pid) - cpu) / (time.monotonic() - started)

    def measure(self, series: int) -> dict[str, object]:
        """Figures of all encodings for queries of `series` series."""
        return {encoding: self._encoding(series, encoding) for encoding in ENCODINGS}

    def _encoding(self, series: int, encoding: str) -> dict[str, object]:
        sizes = self._frame_sizes(series, encoding)
        request = frames_request(sizes)
        first = [self._seconds(lambda: _drain(self._select(self._request(series, encoding)))) for _ in range(FAMILIES)]
        requests = cycle([self._request(series, encoding) for _ in range(FAMILIES)])
        times = self._queries * max(SIZES) // series
        last_byte, cpu_ms = self._timed(times, lambda: _drain(self._select(next(requests))))
        decoded, _ = self._timed(times, lambda: self._decode(series, encoding))
        echo, _ = self._timed(times, lambda: _drain(self._echo(request)))
        result: dict[str, object] = {
            "bytes": sum(sizes),
            "frames": len(sizes),
            "first_ms": percentiles_ms(first),
            "last_byte_ms": percentiles_ms(last_byte),
            "decoded_ms": percentiles_ms(decoded),
            "echo_ms": percentiles_ms(echo),
            "store_cpu_ms_per_query": cpu_ms,
        }
        say(f"{series} {encoding}: {result}")
        return result

    def _timed(self, times: int, call: Callable[[], object]) -> tuple[list[float], float]:
        """(seconds of each of `times` calls, CPU ms of the store a call, without the CPU it uses when idle)."""
        cpu, begun = cpu_of(self._store.pid), time.perf_counter()
        seconds = [self._seconds(call) for _ in range(times)]
        wall = time.perf_counter() - begun
        used = cpu_of(self._store.pid) - cpu - self.idle_cores * wall
        return seconds, round(max(used, 0.0) / times * 1e3, 2)

    def _seconds(self, call: Callable[[], object]) -> float:
        started = time.perf_counter()
        call()
        return time.perf_counter() - started

    def _decode(self, series: int, encoding: str) -> None:
        result = self._client.select(self._selector(series), *self._range, encoding=encoding)
        assert (len(result), result.samples) == (series, series * SAMPLES), f"{len(result)} series came"

    def _frame_sizes(self, series: int, encoding: str) -> list[int]:
        return [len(frame) for frame in self._select(self._request(series, encoding))]

    def _request(self, series: int, encoding: str) -> bytes:
        call = SelectQuery(self._selector(series), *self._range, encoding=encoding).call()
        assert isinstance(call.request, reader_pb2.SelectRequest)
        return call.request.SerializeToString()

    def _selector(self, series: int) -> str:
        """A selector of `series` series: one or two metrics over enough instances, the next metric at each call."""
        instances, families = series // SERIES_PER_PACK, 1
        if instances > SERIES // SERIES_PER_INSTANCE:
            instances, families = instances // 2, 2
        first = next(self._turn) * families % FAMILIES
        names = "|".join(f"bench_metric_{first + number:02d}" for number in range(families))
        return f'{{job="bench",__name__=~"{names}",instance=~"{below(instances)}"}}'


def _method(address: str, name: str) -> Callable[[bytes], Iterator[bytes]]:
    """A method that returns messages as bytes: without serializers the time ends at the last byte.

    Messages are read on the caller's thread, without a second thread in between.
    """
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), (ChannelOptions.SingleThreadedUnaryStream, 1)]
    channel: Any = grpc.insecure_channel(address, options=options)
    return lambda request: channel.unary_stream(name)(request)  # The closure keeps the channel open.


def below(instances: int) -> str:
    """A pattern for the first `instances` instances, a multiple of 10."""
    hundreds, tens = divmod(instances // 10, 10)
    parts = [f"host-00[0-{hundreds - 1}]..:9100"] if 0 < hundreds < 10 else ["host-00...:9100"] if hundreds else []
    if tens:
        parts.append(f"host-00{hundreds}[0-{tens - 1}].:9100")
    return "|".join(parts)


def _drain(frames: Iterator[bytes]) -> int:
    return sum(map(len, frames))
