"""The series table of a gateway: CPU and memory of its write path alone, over a log that answers at once.

Requests of 1,000 series with one sample each go from wire bytes to answer, without gRPC and Kafka. Figures: CPU ns a
sample of known series, for few and for many of them; the same with twice as many series as the table has rows; CPU us
of a new series; the longest hold of the table's lock while it grows; memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import grpc
import numpy as np

from bench.gateway.sink import NoDeadline, Sink
from bench.ground import PARTITIONS
from bench.measure import rss_mib, say
from ingest.grpc.service import write
from ingest.limits import IngestLimits, SeriesLimits
from ingest.pipeline import WritePipeline
from tsdb.log.interface import Log
from tsdb.model.clock import SystemClock
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION
from tsdb.v1 import ingest_pb2

PER_REQUEST = 1000
FEW, MANY = 10_000, 2_000_000
SAMPLES_LEAST = 200_000  # Samples of each measurement, so that few series are written several times.
SOURCE_SERIES = 500  # Series of one instance.
SMALL_TABLE_BYTES = 16 << 20
SMALL_TABLE_ROWS = 200_000  # About two thirds of the bytes, at 48 bytes a row and 7/8 full.


def main(argv: Sequence[str]) -> dict[str, object]:
    """CPU ns a sample, CPU us a series, and MiB."""
    parser = argparse.ArgumentParser(prog="bench series_table", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the series")
    parser.add_argument("--few", type=int, default=FEW)
    parser.add_argument("--many", type=int, default=MANY)
    arguments = parser.parse_args(argv)
    many = arguments.many // 10 if arguments.quick else arguments.many
    result: dict[str, object] = {}
    for name, count, table_bytes in (
        ("few", arguments.few, IngestLimits().series_table_bytes),
        ("many", many, IngestLimits().series_table_bytes),
        ("with_room", 2 * SMALL_TABLE_ROWS, IngestLimits().series_table_bytes),
        ("twice_the_table", 2 * SMALL_TABLE_ROWS, SMALL_TABLE_BYTES),
    ):
        result[name] = _measured(count, table_bytes)
        say(f"{name}: {result[name]}")
    return result


def _measured(count: int, table_bytes: int) -> dict[str, float]:
    pipeline, base_mib = _pipeline(table_bytes), rss_mib(os.getpid())
    announcing = _written(pipeline, count)
    passes = [_written(pipeline, count) for _ in range(max(3, SAMPLES_LEAST // count))]
    return {
        "series": count,
        "new_series_us": round(announcing.cpu_s / count * 1e6, 2),
        "known_sample_ns": round(statistics.median(one.cpu_s for one in passes) / count * 1e9),
        "slowest_request_cpu_ms": round(max(one.slowest_s for one in (announcing, *passes)) * 1e3, 2),
        "rss_mib": round(rss_mib(os.getpid())),
        "grown_mib": round(rss_mib(os.getpid()) - base_mib),
    }


@dataclass(slots=True)
class _Written:
    """CPU seconds of this thread: the total of all requests, and that of the slowest request."""

    cpu_s: float = 0.0
    slowest_s: float = 0.0


def _written(pipeline: WritePipeline, count: int) -> _Written:
    """Write one sample of each series."""
    result, context = _Written(), cast(grpc.ServicerContext, NoDeadline())
    for data in _requests(count):
        began = time.thread_time()
        write(pipeline, None, data, context)
        spent_s = time.thread_time() - began
        result.cpu_s += spent_s
        result.slowest_s = max(result.slowest_s, spent_s)
    return result


def _pipeline(table_bytes: int) -> WritePipeline:
    limits = IngestLimits(series_table_bytes=table_bytes, series=SeriesLimits(10_000_000, 10_000_000))
    log = cast(Log, Sink())
    return WritePipeline(log, PlacementRule(), PARTITIONS, PRODUCTION, limits, SystemClock())


def _requests(count: int) -> Iterator[bytes]:
    """Requests of PER_REQUEST series each. A scraper sends such labels: 6 labels and 120 bytes a series."""
    values = np.zeros(PER_REQUEST).tobytes()
    for first in range(0, count, PER_REQUEST):
        now_ms = np.full(PER_REQUEST, int(time.time() * 1000), np.int64).tobytes()
        labels = [_labels(number) for number in range(first, first + PER_REQUEST)]
        yield ingest_pb2.WriteRequest(labels=labels, ts_ms=now_ms, values=values).SerializeToString()


def _labels(number: int) -> bytes:
    instance, metric = divmod(number, SOURCE_SERIES)
    return (
        b"__name__\xffnode_metric_%d_total\xffcpu\xff%d\xffdevice\xffsda\xffinstance\xfffrontend-%d:9100\xff"
        b"job\xffnode-exporter\xffmode\xffsystem" % (metric // 8, metric % 8, instance)
    )
