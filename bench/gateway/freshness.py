"""Freshness: from the start of a write until the sample is visible, over real gateway, broker and store processes.

Visible means that a Select with the write's token answers, or that a Watch delivers the sample. Measured on a quiet log
and with a flow of other samples. The control is the write alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.flow_process import Flow
from bench.ground import PARTITIONS, kafka_log
from bench.measure import percentiles_ms, say
from stack.ports import Ports
from tsdb.client import Client, ReadOptions, WriteBatch, connect
from tsdb.log.topics import LOG_APPEND_TIME
from tsdb.model.errors import TsdbError

READY_WITHIN_S = 300.0
FLOW_SERIES = 150_000
SERIES = 50
PAUSE_S = 0.02


def main(argv: Sequence[str]) -> dict[str, object]:
    """Percentiles in ms, for each way to read a sample."""
    parser = argparse.ArgumentParser(prog="bench freshness", description=__doc__)
    parser.add_argument("--writes", type=int, default=400)
    parser.add_argument("--quick", action="store_true", help="a quarter of the writes")
    arguments = parser.parse_args(argv)
    writes = arguments.writes // 4 if arguments.quick else arguments.writes
    with kafka_log(PARTITIONS, broker_times=LOG_APPEND_TIME) as url, ExitStack() as stack:
        gateway, store = stack.enter_context(_role("gateway", url)), stack.enter_context(_role("store", url))
        writer, reader = stack.enter_context(connect(gateway)), stack.enter_context(connect(store))
        _wait_ready(writer, reader)
        quiet = _measure(writer, reader, writes)
        say(f"quiet {quiet}")
        with Flow(url, series=FLOW_SERIES):
            time.sleep(2.0)
            busy = _measure(writer, reader, writes)
    return {"quiet": quiet, f"with_{FLOW_SERIES}_samples_per_s": busy}


def _measure(writer: Client, reader: Client, writes: int) -> dict[str, object]:
    seen = _Seen(reader)
    written, selected = [], []
    starts: dict[int, float] = {}
    for number in range(writes):
        ts_ms = int(time.time() * 1000)
        batch = WriteBatch()
        batch.add({"__name__": "bench_freshness", "job": "bench", "instance": f"i{number % SERIES}"}, ts_ms, number)
        starts[number] = started = time.perf_counter()
        result = writer.write(batch)
        written.append(time.perf_counter() - started)
        found = reader.select(
            f'bench_freshness{{instance="i{number % SERIES}"}}',
            ts_ms,
            ts_ms + 1,
            options=ReadOptions(after=result.tokens),
        )
        selected.append(time.perf_counter() - started)
        assert found.values.tolist() == [number], f"write {number} was not visible to a Select with its token"
        time.sleep(PAUSE_S)
    watched = seen.finish(starts)
    return {
        "write_ms": percentiles_ms(written),
        "select_ms": percentiles_ms(selected),
        "watch_ms": percentiles_ms(watched),
    }


class _Seen:
    """The times at which a Watch delivered each value. Has its own thread and stream."""

    def __init__(self, reader: Client) -> None:
        self._times: dict[int, float] = {}
        self._stop = threading.Event()
        self._stream = reader.watch("bench_freshness", duration_s=READY_WITHIN_S)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        time.sleep(0.5)  # A watch delivers only samples that are applied after its start.

    def finish(self, starts: dict[int, float]) -> list[float]:
        """Seconds from each start until the value was delivered. Every value must be delivered."""
        give_up_at = time.monotonic() + 5.0
        while len(self._times) < len(starts) and time.monotonic() < give_up_at:
            time.sleep(0.01)
        self._stop.set()
        missing = starts.keys() - self._times.keys()
        assert not missing, f"{len(missing)} of {len(starts)} writes were not watched"
        return [self._times[number] - started for number, started in starts.items()]

    def _follow(self) -> None:
        try:
            for batch in self._stream:
                now = time.perf_counter()
                for value in batch.values.tolist():
                    self._times.setdefault(int(value), now)
        except TsdbError:
            if not self._stop.is_set():  # Closing the client ends the stream.
                raise


@contextmanager
def _role(name: str, url: str) -> Iterator[str]:
    """gRPC address of a `tsdb` role in a separate process."""
    with Ports(2) as ports:
        grpc, http = (f"127.0.0.1:{number}" for number in ports.numbers)
        command = [sys.executable, "-m", "tsdb.cli.main", name, "--log", url, "--grpc", grpc, "--http", http]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield grpc
        finally:
            child.terminate()
            try:
                child.wait(30.0)
            except subprocess.TimeoutExpired:
                child.kill()


def _wait_ready(writer: Client, reader: Client) -> None:
    give_up_at = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            batch = WriteBatch()
            batch.add({"__name__": "bench_ready", "job": "bench"}, int(time.time() * 1000), 1.0)
            tokens = writer.write(batch, timeout_s=5.0).tokens
            reader.select("bench_ready", 0, 1 << 60, options=ReadOptions(after=tokens), timeout_s=5.0)
            return
        except TsdbError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.5)
