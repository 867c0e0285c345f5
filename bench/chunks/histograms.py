"""Histogram codec: bytes a native histogram in chunks and in log records, and CPU time to encode and to decode.

Latency histograms of 60 buckets, sampled every 15 s over one window of 4 h, whose counters grow by as many requests as
each set has. Chunks have all samples of a series in a row; records have one sample of each series. Times are medians of
process time, one thread; the control is a copy of the same counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from tsdb.codec.chunk.chunk import Fragment, decode_chunk, encode_chunk
from tsdb.codec.records.log_record import decode_records, encode_record
from tsdb.model.details import SampleDetails
from tsdb.model.histograms import NOT_RESET, HistogramColumns, HistogramShape

WINDOW_MS = 4 * 3600 * 1000
INTERVAL_MS = 15_000
SAMPLES = WINDOW_MS // INTERVAL_MS
BUCKETS = 60
REQUESTS = {"rare": 2, "usual": 60, "busy": 30_000}  # Requests of a series between two samples.
SHAPE = HistogramShape(3, 2.0**-128, ((-20, BUCKETS),))


def main(argv: Sequence[str]) -> dict[str, object]:
    """Measure the three sets."""
    parser = argparse.ArgumentParser(prog="bench histograms", description=__doc__)
    parser.add_argument("--series", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="fewer series and rounds")
    arguments = parser.parse_args(argv)
    series, rounds = (20, 3) if arguments.quick else (arguments.series, arguments.rounds)
    return {name: _measure(columns_of(requests, series), series, rounds) for name, requests in REQUESTS.items()}


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


def _us(work: Callable[[], object], rounds: int, count: int) -> float:
    """Median CPU time of one of `count` histograms in microseconds."""
    found = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return round(statistics.median(found) / count * 1e6, 3)
