"""Steady: CPU and lag of a store process while 150 k samples/s flow through a real broker with 18 partitions. The
control is a process that only consumes the same records.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

from bench.flow_process import SERIES, Flow
from bench.ground import PARTITIONS, kafka_log
from bench.measure import cpu_of, rss_mib, say, spent
from bench.store_process import StoreProcess
from tsdb.client import connect
from tsdb.log.interface import METRICS
from tsdb.log.open import open_log

WARM_S = 5.0


def main(argv: Sequence[str]) -> dict[str, object]:
    """Cores used by the store, and its lag."""
    parser = argparse.ArgumentParser(prog="bench steady", description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--series", type=int, default=SERIES, help="each writes a sample a second")
    parser.add_argument("--quick", action="store_true", help="10 seconds")
    arguments = parser.parse_args(argv)
    seconds = 10.0 if arguments.quick else arguments.seconds
    with kafka_log(PARTITIONS) as url, StoreProcess(url) as store:
        store.wait_ready()
        with Flow(url, series=arguments.series) as flow:
            time.sleep(WARM_S)
            before, cpu, started = store.state(), cpu_of(store.pid), time.monotonic()
            lags = _lags(store.address, seconds)
            after, cores = store.state(), (cpu_of(store.pid) - cpu) / (time.monotonic() - started)
            rate = (after["samples"] - before["samples"]) / (time.monotonic() - started)
            say(f"store {cores:.2f} cores at {rate:.0f} samples/s")
            control = consume_alone(url, min(seconds, 10.0))
            memory = rss_mib(store.pid)
    return {
        "samples_per_s": round(rate),
        "written": flow.wrote,
        "store_cores": round(cores, 3),
        "consume_alone_cores": round(control, 3),
        "lag_ms_p50": round(statistics.median(lags)),
        "lag_ms_max": round(max(lags)),
        "rss_mib": memory,
    }


def _lags(address: str, seconds: float) -> list[float]:
    """Highest lag of all partitions in ms, once a second."""
    lags = []
    with connect(address) as client:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            lags.append(float(max(state.lag_ms for state in client.coverage())))
            time.sleep(1.0)
    return lags


def consume_alone(url: str, seconds: float) -> float:
    """Cores used by consuming from the end of the log, with the poll timeout of a store."""
    with open_log(url) as log:
        marks = log.watermarks(METRICS, list(range(PARTITIONS)))
        with log.reader({(METRICS, partition): at.high for partition, at in marks.items()}) as reader, spent() as used:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                reader.poll(0.05)
    return used.cpu_s / used.wall_s
