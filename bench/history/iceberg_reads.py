"""Iceberg reads: ms of history's reads over a table as emitted, and after its files were joined.

A day of 1,200 series at 15 s, emitted in 24 files. --warehouse s3://BUCKET/FOLDER takes an S3 server, which variables
PYICEBERG_CATALOG__TSDB__S3__* name. A cold read has a new connection and an empty cache. The control is one request for
the size of a file.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from pyiceberg.table import Table

from bench.measure import say, spent
from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.iceberg.catalog import TableSettings, create_table, load_table, open_catalog, series_table
from tsdb.history.iceberg.emission import emit
from tsdb.history.iceberg.maintain import compact
from tsdb.history.iceberg.state import TableState
from tsdb.history.interface import ClosableReads, WantedSeries, WindowRange
from tsdb.history.open import open_history_reads
from tsdb.history.settings import HistorySettings
from tsdb.model.labels import canonical_labels, metric_name, series_id
from tsdb.model.times import DAY_MS

METRICS, INSTANCES = 20, 60
STEP_MS = 15_000
HOURS = 24
MANY = 600
START_MS = 20_000 * DAY_MS
NAME = "tsdb.samples"


def main(argv: Sequence[str]) -> dict[str, object]:
    """Medians of wall and CPU ms, of one series and of 600, cold and warm."""
    parser = argparse.ArgumentParser(prog="bench iceberg_reads", description=__doc__)
    parser.add_argument("--warehouse", default="", help="folder of the table's files; by default a local one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    arguments = parser.parse_args(argv)
    rounds = 3 if arguments.quick else arguments.rounds
    labels = [
        canonical_labels({"__name__": f"metric_{number % METRICS}", "job": "j", "instance": f"i{number // METRICS}"})
        for number in range(METRICS * INSTANCES)
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        _table(Path(folder), labels, arguments.warehouse) as (table, url, join),
    ):
        emitted = _times(url, Path(folder), labels, rounds)
        join()
        joined = _times(url, Path(folder), labels, rounds)
        request = _request_ms(table)
    return {"emitted": emitted, "joined": joined, "request_ms": request}


@contextmanager
def _table(folder: Path, labels: Sequence[bytes], warehouse: str) -> Iterator[tuple[Table, str, Callable[[], object]]]:
    """A filled table, the URL of history over it, and the function that joins its files."""
    settings = TableSettings(f"sqlite:///{folder}/catalog.db", warehouse, NAME)
    known = {series_id(one): one for one in labels}
    with open_catalog(settings) as catalog:
        create_table(catalog, NAME, 1)
        series_table(catalog, load_table(catalog, NAME), {})
        for hour in range(HOURS):
            fragment = _fragment(sorted(known), START_MS + hour * 3_600_000)
            state = TableState(hour + 1, "bench", "log", "chunks", {0: hour + 1})
            emit(load_table(catalog, NAME), [fragment], lambda ids: [known[one] for one in ids], state)
        table = load_table(catalog, NAME)
        yield table, f"iceberg+{table.location()}", lambda: list(compact(catalog, NAME, 2))


def _fragment(ids: Sequence[int], start_ms: int) -> Fragment:
    count = 3_600_000 // STEP_MS
    ts_ms = np.tile(start_ms + STEP_MS * np.arange(count), len(ids))
    value = np.round(np.random.default_rng(start_ms // 1000).normal(50, 5, len(ts_ms)), 2)
    starts = np.arange(len(ids) + 1) * count
    return Fragment(1, start_ms, np.array(ids, np.uint64), starts, ts_ms, value, np.full(len(ts_ms), 1))


def _times(url: str, folder: Path, labels: Sequence[bytes], rounds: int) -> dict[str, dict[str, float]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds + 1):  # The first one loads modules.
        for name, chosen in (("one", labels[number : number + 1]), ("many", labels[:MANY])):
            settings = HistorySettings(cache_folder=folder / f"cache{number}{name}")
            with spent() as opening:
                history = open_history_reads(url, settings)
            with closing(history):
                for kind in ("cold", "warm"):
                    with spent() as one:
                        _read(history, chosen)
                    both = [
                        one.wall_s + opening.wall_s * (kind == "cold"),
                        one.cpu_s + opening.cpu_s * (kind == "cold"),
                    ]
                    if number:
                        found.setdefault(f"{name}_{kind}", []).append((both[0], both[1]))
    result = {
        name: {
            "wall_ms": round(statistics.median(wall for wall, _ in some) * 1e3, 1),
            "cpu_ms": round(statistics.median(cpu for _, cpu in some) * 1e3, 1),
        }
        for name, some in found.items()
    }
    say(f"{result}")
    return result


def _read(history: ClosableReads, labels: Sequence[bytes]) -> None:
    ids = np.array(sorted(series_id(one) for one in labels), np.uint64)
    wanted = WantedSeries(ids, lambda: {metric_name(one) for one in labels})
    windows = WindowRange(START_MS, START_MS + DAY_MS)
    samples = sum(row.fragment().samples for rows in history.read([1], windows, wanted) for row in rows)
    assert samples == len(labels) * DAY_MS // STEP_MS, samples


def _request_ms(table: Table) -> float:
    taken = []
    for _ in range(20):
        began = time.perf_counter()
        assert table.io.new_input(table.metadata_location).exists()
        taken.append(time.perf_counter() - began)
    return round(statistics.median(taken) * 1e3, 2)
