"""Histogram codec: bytes a native histogram in chunks and in log records, and CPU time to encode and to decode.

Latency histograms of 60 buckets, sampled every 15 s over one window of 4 h, whose counters grow by as many requests as
each set has. Chunks have all samples of a series in a row; records have one sample of each series. Times are medians of
process time, one thread; the control is a copy of the same counts. With a Prometheus, its head gets the samples of
20 series by remote write, and the bytes of its chunks are read back.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from bench.gateway.histogram_bodies import HistogramBodies, prometheus_chunk_bytes, send_histograms
from bench.gateway.ingest_targets import prometheus
from bench.gateway.sender_process import REMOTE_WRITE
from tsdb.codec.chunk.chunk import Fragment, decode_chunk, encode_chunk
from tsdb.codec.records.log_record import decode_records, encode_record
from tsdb.model.details import SampleDetails
from tsdb.model.histograms import NOT_RESET, HistogramColumns, HistogramShape

WINDOW_MS = 4 * 3600 * 1000
INTERVAL_MS = 15_000
SAMPLES = WINDOW_MS // INTERVAL_MS
BUCKETS = 60
REQUESTS = {"rare": 2, "usual": 60, "busy": 30_000}  # Requests of a series between two samples.
CONTROL_SERIES = 20
SHAPE = HistogramShape(3, 2.0**-128, ((-20, BUCKETS),))


def main(argv: Sequence[str]) -> dict[str, object]:
    """Measure the three sets."""
    parser = argparse.ArgumentParser(prog="bench histograms", description=__doc__)
    parser.add_argument("--series", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="fewer series and rounds")
    parser.add_argument("--prometheus", help="path of the control's binary, 3.8 or newer; default: no control")
    arguments = parser.parse_args(argv)
    series, rounds = (20, 3) if arguments.quick else (arguments.series, arguments.rounds)
    found = {name: _measure(columns_of(requests, series), series, rounds) for name, requests in REQUESTS.items()}
    if arguments.prometheus:
        for name, requests in REQUESTS.items():
            found[name]["prometheus_chunk_bytes"] = _of_prometheus(arguments.prometheus, requests)
    return {**found}


def columns_of(requests: int, series: int) -> HistogramColumns:
    """SAMPLES histograms of each series, in a row. Requests take log-normal times around a median of each series."""
    rng = np.random.default_rng(7)
    index = np.arange(BUCKETS)
    counts = []
    for _ in range(series):
        share = np.exp(-0.5 * ((index - rng.uniform(20, 40)) / rng.uniform(5, 9)) ** 2)
        load = requests * (1 + 0.5 * np.sin(np.arange(SAMPLES) / 300 + rng.uniform(0, 6)))
        growth = rng.poisson(load[:, None] * share / share.sum())
        counts.append(rng.integers(0, 100 * requests, BUCKETS) + np.cumsum(growth, axis=0))
    buckets = np.concatenate(counts).astype(np.float64)
    total, rows = buckets.sum(axis=1), len(buckets)
    return HistogramColumns(
        (SHAPE,),
        np.zeros(rows, np.int32),
        np.arange(rows + 1) * BUCKETS,
        buckets.ravel(),
        total,
        total * 0.25 + rng.random(rows).cumsum(),
        np.zeros(rows),
        np.full(rows, NOT_RESET, np.uint8),
        np.ones(rows, np.bool_),
    )


def _measure(columns: HistogramColumns, series: int, rounds: int) -> dict[str, object]:
    rows = len(columns)
    ids, ts_ms = np.arange(series, dtype=np.uint64), np.tile(np.arange(SAMPLES) * INTERVAL_MS, series)
    starts, order = np.arange(series + 1) * SAMPLES, np.full(rows, 9)
    details = SampleDetails(None, columns, np.arange(rows))
    fragment = Fragment(7, 0, ids, starts, ts_ms, columns.sums, order, details)
    parts = encode_chunk(fragment, window_ms=WINDOW_MS)
    at = [np.arange(0, rows, SAMPLES) + number for number in range(0, SAMPLES, 40)]
    scrapes = [(columns.sums[one], details.take(one)) for one in at]
    pack, length = np.array([7], np.uint64), np.array([series], np.uint32)

    def records() -> list[bytes]:
        return [encode_record(pack, length, ids, ts_ms[:series] * 0, sums, some) for sums, some in scrapes]

    made = records()
    joined, ends = b"".join(made), np.cumsum([0, *map(len, made)])
    in_records = len(made) * series
    return {
        "histograms": rows,
        "chunk_bytes": round(sum(map(len, parts)) / rows, 2),
        "record_bytes": round(len(joined) / in_records, 2),
        "chunk_encode_us": _us(lambda: encode_chunk(fragment, window_ms=WINDOW_MS), rounds, rows),
        "chunk_decode_us": _us(lambda: [decode_chunk(part) for part in parts], rounds, rows),
        "record_encode_us": _us(records, rounds, in_records),
        "record_decode_us": _us(lambda: decode_records(joined, ends), rounds, in_records),
        "control_copy_us": _us(columns.buckets.copy, rounds, rows),
    }


def _of_prometheus(binary: str, requests: int) -> float:
    """Bytes a histogram in the chunks of a Prometheus's head."""
    columns = columns_of(requests, CONTROL_SERIES)
    buckets = columns.buckets.astype(np.int64).reshape(CONTROL_SERIES, SAMPLES, BUCKETS)
    sums = columns.sums.reshape(CONTROL_SERIES, SAMPLES)
    labels = [{"__name__": "h", "instance": f"host-{number}:9100"} for number in range(CONTROL_SERIES)]
    bodies, end_ms = HistogramBodies(labels, SHAPE), int(time.time() * 1000)
    times = [end_ms - (SAMPLES - 1 - number) * INTERVAL_MS for number in range(SAMPLES)]
    with prometheus(binary) as server:
        address = server.addresses[REMOTE_WRITE]
        send_histograms(address, [bodies.body(at, buckets[:, n], sums[:, n]) for n, at in enumerate(times)])
        size = prometheus_chunk_bytes(address.partition("/")[0], "h", times[0], times[-1])
    return round(size / sums.size, 2)


def _us(work: Callable[[], object], rounds: int, count: int) -> float:
    """Median CPU time of one of `count` histograms in microseconds."""
    found = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return round(statistics.median(found) / count * 1e6, 3)
