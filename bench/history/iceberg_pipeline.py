"""Iceberg pipeline: CPU of the Iceberg table beside that of the pipeline which it follows.

One log of closed windows goes through the steps of the pipeline, one after another in this process: chunks are built as
the tasks of Spark do, a loader brings them into SQLite, and a keeper into the table; then the table's files are joined.
The cost of Spark itself, of the log's clients in other processes and of a server of history is not in it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.ground import Appends, embedded_log, high_watermarks
from bench.measure import Spent, say, spent
from bench.spark.spark_ground import PARTITIONS, build_options, fill_windows
from bench.workload import SAMPLES, Workload
from spark_backfill.building.build import build
from spark_backfill.building.items import BaseItem
from spark_backfill.building.plan import items_of, plan_partitions
from tsdb.history.iceberg.catalog import HINT, TableSettings, create_table, load_table, open_catalog
from tsdb.history.iceberg.keeper import KeeperOptions, TableKeeper
from tsdb.history.iceberg.maintain import compact
from tsdb.history.iceberg.state import table_state
from tsdb.history.loader.loader import GROUP, Loader, LoaderOptions
from tsdb.history.open import open_history, open_history_admin
from tsdb.history.shared_settings import ensure_history
from tsdb.log.interface import CHUNKS, Log
from tsdb.log.open import open_log
from tsdb.model.clock import SystemClock
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import PRODUCTION

SERIES = 8_000
WINDOWS = 6
BUCKETS = 16
WITHIN_S = 900.0
FILES_MIN = 8


def main(argv: Sequence[str]) -> dict[str, object]:
    """CPU ns a sample of each step, bytes a sample of the table, and the seconds from the last chunk to its commit."""
    parser = argparse.ArgumentParser(prog="bench iceberg_pipeline", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer series")
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--windows", type=int, default=WINDOWS)
    parser.add_argument("--interval-s", type=float, default=60.0, help="tables_commit_interval_s")
    arguments = parser.parse_args(argv)
    series = 500 if arguments.quick else arguments.series
    workload = Workload(series, PARTITIONS, samples=arguments.windows * SAMPLES)
    samples = series * arguments.windows * SAMPLES
    with embedded_log(PARTITIONS) as url, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        windows = fill_windows(url, workload, arguments.windows)
        options = build_options(url)
        log = stack.enter_context(open_log(url))
        items = list(items_of(log, plan_partitions(log, windows, PRODUCTION), windows, PRODUCTION))
        chunks = Appends(log)
        with spent() as building:
            for item in items:
                if isinstance(item, BaseItem):
                    for record in build(item, log, options, SystemClock()):
                        chunks.add(CHUNKS, item.partition, record.value or b"", key=record.key)
            chunks.wait()
        loading = _loaded(log, Path(folder))
        table = TableSettings(f"sqlite:///{folder}/catalog.db")
        keeping, late_s = _kept(log, table, arguments.interval_s)
        with spent() as joining, open_catalog(table) as catalog:
            list(compact(catalog, table.name, FILES_MIN))
        with open_catalog(table) as catalog:
            snapshot = load_table(catalog, table.name).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        size = int(snapshot.summary.additional_properties["total-files-size"])
        files = int(snapshot.summary.additional_properties["total-data-files"])
    steps = {"build": building, "load": loading, "keep": keeping, "compact": joining}
    ns = {name: round(one.cpu_s / samples * 1e9) for name, one in steps.items()}
    without = building.cpu_s + loading.cpu_s
    return {
        "samples": samples,
        "chunks": chunks.count,
        "cpu_ns_a_sample": ns,
        "with_keeper": round((without + keeping.cpu_s) / without, 2),
        "with_keeper_and_compaction": round((without + keeping.cpu_s + joining.cpu_s) / without, 2),
        "behind_s": round(late_s, 1),
        "files": files,
        "bytes_a_sample": round(size / samples, 2),
    }


def _loaded(log: Log, folder: Path) -> Spent:
    url = f"sqlite:///{folder}/history.db"
    with open_history_admin(url) as admin:
        ensure_history(admin, MetaSettings(PARTITIONS, time_set=PRODUCTION))
    group = log.group(GROUP)
    ends = {(CHUNKS, number): end for number, end in high_watermarks(log, CHUNKS, range(PARTITIONS)).items()}

    def done() -> bool:
        committed = group.committed(list(ends))
        return all(end == 0 or ((at := committed[place]) and at.next_offset >= end) for place, end in ends.items())

    with open_history(url) as history:
        loader = Loader(log, history, LoaderOptions(PRODUCTION, concurrency=4096), SystemClock())
        with spent() as loading:
            loader.start()
            _wait(done, loader.failure)
            loader.close()
            loader.join(WITHIN_S)
    group.leave()
    say(f"loaded: {loading.cpu_s:.1f} s")
    return loading


def _kept(log: Log, table: TableSettings, interval_s: float) -> tuple[Spent, float]:
    """CPU of the keeper, and seconds from its start, when all chunks were there, to its last commit."""
    with open_catalog(table) as catalog:
        create_table(catalog, table.name, BUCKETS)
        hint = Path(load_table(catalog, table.name).location().removeprefix("file://"), "metadata", HINT)
    ends = high_watermarks(log, CHUNKS, range(PARTITIONS))
    seen = hint.read_bytes()

    def done() -> bool:
        nonlocal seen
        now = hint.read_bytes()
        if now == seen:
            return False
        seen = now  # Loading the table costs as much as a small commit.
        with open_catalog(table) as catalog:
            state = table_state(load_table(catalog, table.name))
        return state is not None and state.next_offsets == ends

    keeper = TableKeeper(log, KeeperOptions(table, PRODUCTION, interval_s), SystemClock())
    with spent() as keeping:
        keeper.start()
        _wait(done, keeper.failure)
        keeper.close()
        keeper.join(WITHIN_S)
    say(f"kept: {keeping.cpu_s:.1f} s")
    return keeping, keeping.wall_s


def _wait(done: Callable[[], bool], failure: Callable[[], BaseException | None], every_s: float = 0.2) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while not done():
        if (error := failure()) is not None:
            raise error
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"not done in {WITHIN_S:.0f} s")
        time.sleep(every_s)
