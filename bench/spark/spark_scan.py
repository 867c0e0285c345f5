"""Spark scan: from history to a DataFrame, in MB/s of blobs, on one core and on two, with runs or samples as rows, with
some columns and with all. Wall and CPU time, with the JVM's CPU separately.

The blobs are windows with values like the workload's in an embedded history. The control decodes the same blobs in this
process and drops the result.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.measure import median_spent, say, spent
from bench.spark.spark_ground import local_session, median_spark_spent
from spark_backfill import register
from spark_backfill.places import Places
from spark_backfill.source.columns import sample_schema
from spark_backfill.source.options import RUNS
from spark_backfill.source.options import SAMPLES as SAMPLE_ROWS
from tsdb.codec.chunk.chunk import Fragment, decode_chunk, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.records.series_record import Announcement
from tsdb.history.interface import ChunkStore
from tsdb.history.open import open_history, open_history_admin
from tsdb.history.shared_settings import ensure_history
from tsdb.history.writes import write_sync
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.meta import MetaSettings
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import index_epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SERIES_PER_PACK = 50
SAMPLES = 240
SLOWER = 10  # Samples as rows are scanned for one tenth of the packs; all of them would take minutes.
WINDOW_MS = PRODUCTION.window_ms
START_MS = 1_699_992_000_000 // WINDOW_MS * WINDOW_MS
IDS_TIMES_VALUES = ("series_id", "ts", "value")
COLUMNS = {
    "values": ("value",),
    "ids_times_values": IDS_TIMES_VALUES,
    "all": ("labels", "series_id", "pack_id", "ts", "value"),
}


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Figures of all scans, for one core and for two."""
    parser = argparse.ArgumentParser(prog="bench spark_scan", description=__doc__)
    parser.add_argument("--packs", type=int, default=96)
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    packs, windows = (16, 6) if options.quick else (options.packs, options.windows)
    with tempfile.TemporaryDirectory(prefix="bench-scan-") as folder:
        runs = _Scan(f"sqlite:///{folder}/runs.db", packs, windows, options.rounds)
        samples = _Scan(f"sqlite:///{folder}/samples.db", max(packs // SLOWER, 1), windows, options.rounds)
        control = median_spent(lambda: [decode_chunk(blob) for blob in runs.blobs], options.rounds)
        result: dict[str, Any] = {
            "blob_mb": round(runs.size / 1e6, 1),
            "samples": runs.samples,
            "bytes_a_sample": round(runs.size / runs.samples, 2),
            "decode_mb_s": round(runs.size / control.wall_s / 1e6, 1),
        }
        for cores in (1, 2):
            with local_session(cores) as spark:
                register(spark)
                result[f"local[{cores}]"] = {**runs.by_runs(spark), **samples.by_samples(spark)}
    return result


class _Scan:
    """Scans of one history. size: bytes of its blobs."""

    def __init__(self, url: str, packs: int, windows: int, rounds: int) -> None:
        self._url = url
        self._rounds = rounds
        self.blobs = fill(url, packs, windows)
        self.size = sum(map(len, self.blobs))
        self.samples = packs * windows * SERIES_PER_PACK * SAMPLES

    def by_runs(self, spark: SparkSession) -> dict[str, Any]:
        """Scans with runs as rows: unchanged, summed, and exploded into samples."""

        def summed() -> None:
            values = self._read(spark, COLUMNS["values"], RUNS)
            sums = values.selectExpr("aggregate(value, 0D, (a, b) -> a + b) sum")
            sums.selectExpr("sum(sum)").collect()

        ways = {
            f"runs_{name}": self._spent(spark, partial(self._scan, spark, columns, RUNS))
            for name, columns in COLUMNS.items()
        }
        ways["runs_summed"] = self._spent(spark, summed)
        flat = ("series_id", "inline(arrays_zip(ts, value))")
        ways["runs_made_flat"] = self._spent(spark, partial(self._scan, spark, IDS_TIMES_VALUES, RUNS, flat))
        return ways

    def by_samples(self, spark: SparkSession) -> dict[str, Any]:
        """Scans with samples as rows."""
        return {
            f"samples_{name}": self._spent(spark, partial(self._scan, spark, columns, SAMPLE_ROWS))
            for name, columns in COLUMNS.items()
        }

    def _scan(self, spark: SparkSession, columns: Sequence[str], rows: str, shown: Sequence[str] = ("*",)) -> None:
        self._read(spark, columns, rows).selectExpr(*shown).write.format("noop").mode("overwrite").save()

    def _read(self, spark: SparkSession, columns: Sequence[str], rows: str) -> DataFrame:
        from pyspark.sql.types import StructType

        schema = sample_schema(runs=rows == RUNS)
        options = Places(history=self._url).options()
        reader = spark.read.format("tsdb").options(**options, splits="8", rows=rows, partial="true")
        return reader.schema(StructType([schema[name] for name in columns])).load()

    def _spent(self, spark: SparkSession, call: Callable[[], object]) -> dict[str, float]:
        took = median_spark_spent(spark, call, self._rounds)
        result = {
            "mb_s": round(self.size / took.wall_s / 1e6, 1),
            "samples_s": round(self.samples / took.wall_s),
            "cpu_ns": round(took.cpu_s / self.samples * 1e9, 1),
            "jvm_ns": round(took.jvm_s / self.samples * 1e9, 1),
        }
        say(f"{result}")
        return result


def fill(url: str, packs: int, windows: int) -> list[bytes]:
    """Write chunks of every pack and window, and their series; return the blobs."""
    shared = MetaSettings(partitions=8)
    with open_history_admin(url) as admin:
        ensure_history(admin, shared)
    blobs: list[bytes] = []
    with spent() as took, open_history(url) as store:
        for pack in range(packs):
            blobs += _fill_pack(store, pack, windows)
    say(f"{len(blobs)} blobs in {took.wall_s:.1f} s at {Path(url.removeprefix('sqlite:///')).parent}")
    return blobs


def _fill_pack(store: ChunkStore, pack: int, windows: int) -> Iterator[bytes]:
    rng = np.random.default_rng(pack)
    labels = [
        canonical_labels({"__name__": f"m{pack}", "job": "bench", "instance": f"i{pack}", "n": str(n), "zone": "a"})
        for n in range(SERIES_PER_PACK)
    ]
    labels.sort(key=series_id)
    pack_id = PlacementRule().place(labels[0]).pack_id
    for canonical in labels:
        number = series_id(canonical)
        for epoch in {index_epoch(number, START_MS), index_epoch(number, START_MS + windows * WINDOW_MS)}:
            announcement = Announcement(number, epoch, pack_id, canonical)
            write_sync(lambda done: store.write_series(announcement, 0, done))  # noqa: B023  # waited for
    ids = np.array(list(map(series_id, labels)), np.uint64)
    starts = np.arange(0, (SERIES_PER_PACK + 1) * SAMPLES, SAMPLES, dtype=np.int64)
    for window in range(windows):
        start_ms = START_MS + window * WINDOW_MS
        times = np.tile(start_ms + np.arange(SAMPLES) * (WINDOW_MS // SAMPLES), SERIES_PER_PACK)
        fragment = Fragment(pack_id, start_ms, ids, starts, times, _values(rng), np.full(len(times), 5, np.int64))
        for part, blob in enumerate(encode_chunk(fragment, window_ms=WINDOW_MS)):
            key = ChunkKey(pack_id, start_ms, Kind.BASE, 6, part)
            write_sync(lambda done: store.write(key, blob, done))  # noqa: B023  # waited for
            yield blob


def _values(rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float64]]:
    """40 % counters, 30 % gauges with two decimals, 20 % noise, 10 % constant."""
    made = np.empty((SERIES_PER_PACK, SAMPLES))
    for at in range(SERIES_PER_PACK):
        kind = at % 10
        if kind < 4:
            made[at] = np.cumsum(rng.integers(0, 1_000, SAMPLES))
        elif kind < 7:
            made[at] = np.round(rng.normal(50, 10, SAMPLES), 2)
        else:
            made[at] = rng.normal(size=SAMPLES) if kind < 9 else 1.0
    return made.ravel()
