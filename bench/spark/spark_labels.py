"""Spark labels: memory and time that a worker needs for the labels of a read of history, without Spark.

Every series is announced in two epochs. Batches are those of a scan: runs of 240 samples, of series in any order for
the first figure, and with the windows of the same packs one after another for the second.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema

from bench.measure import say, spent
from spark_backfill.source.columns import LABELS, sample_schema
from spark_backfill.source.filters import Narrowing
from spark_backfill.source.history import history_table
from spark_backfill.source.series_table import SeriesLabels
from tsdb.history.interface import ChunkStore, SeriesIndexRows
from tsdb.model.labels import canonical_labels

EPOCHS = [600, 601]
PACK = 5
RUN = 240
BATCH_RUNS = 273  # Runs of a batch of 65,536 rows.
BATCHES = 200
ID_STEP = 0x9E3779B97F4A7C15  # Odd, so that no two series have one id.


def main(argv: Sequence[str]) -> dict[str, object]:
    """CPU seconds and MB of the table, CPU ns a row of the column of labels, and MB of the process more than before."""
    parser = argparse.ArgumentParser(prog="bench spark_labels", description=__doc__)
    parser.add_argument("--series", type=int, default=1_000_000)
    parser.add_argument("--names", type=int, default=2_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the series")
    arguments = parser.parse_args(argv)
    count = arguments.series // 10 if arguments.quick else arguments.series
    before = _peak_mb()
    with spent() as making:
        table = history_table(cast(ChunkStore, AnnouncedIndex(count, arguments.names)), Narrowing(), 1).series
    table_mb = _peak_mb() - before
    say(f"a table of {len(table)} series")
    source = np.random.default_rng(1)
    spread = [source.integers(0, len(table), BATCH_RUNS) for _ in range(BATCHES)]
    packs = [np.arange(BATCH_RUNS) + batch // 6 * BATCH_RUNS for batch in range(BATCHES)]
    return {
        "series": len(table),
        "table_cpu_s": round(making.cpu_s, 2),
        "table_peak_mb": round(table_mb),
        "any_order_ns": _row_ns(table, spread),
        "pack_order_ns": _row_ns(table, packs),
        "peak_mb": round(_peak_mb() - before),
    }


def _row_ns(table: SeriesLabels, batches: Sequence[NDArray[np.int64]]) -> float:
    of = to_arrow_schema(sample_schema(), timezone="UTC").field(LABELS)
    rows = 0
    with spent() as took:
        for batch in batches:
            asked = np.repeat(table.series_ids[batch % len(table)], RUN)
            rows += len(table.labels(of, table.find(asked)))
    return round(took.cpu_s / rows * 1e9, 1)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


class AnnouncedIndex:
    """The series index of a history, made at each call."""

    def __init__(self, series: int, names: int) -> None:
        self._each = series // names
        self._names = names

    def epochs(self) -> list[int]:
        return EPOCHS

    def metric_names(self, epoch: int) -> list[bytes]:
        assert epoch in EPOCHS
        return [b"node_metric_%d_seconds_total" % number for number in range(self._names)]

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        assert epoch in EPOCHS
        first = int(name.split(b"_")[2]) * self._each
        numbers = np.arange(first, first + self._each, dtype=np.uint64)
        ids = (numbers + np.uint64(1)) * np.uint64(ID_STEP)
        order = np.argsort(ids)
        labels = list(_labels(name.decode(), numbers[order]))
        return SeriesIndexRows(ids[order], numbers[order] // np.uint64(PACK), np.zeros(self._each, np.int32), labels)


def _labels(name: str, numbers: NDArray[np.uint64]) -> Iterator[bytes]:
    for number in numbers.tolist():
        host = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:9100"
        labels = {"__name__": name, "cluster": "production-eu-west-1", "instance": host, "job": "node-exporter"}
        yield canonical_labels({**labels, "mode": "system", "region": "eu-west-1"})
