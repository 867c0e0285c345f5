"""Spark burst: peak memory of a task that builds one window of a partition in a burst, without Spark.

Each row is a log with one partition and one closed window of `--times` x `--series` series. A separate process builds
the window, as a task does, with and without the limit of samples in memory. Its peak is that of a Python worker; the
process before it reads the log is the base.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.ground import embedded_log, fill
from bench.measure import say, spent
from bench.spark.spark_ground import CLOSES_MS, build_options
from bench.workload import SAMPLES, Workload
from spark_backfill.building.build import build
from spark_backfill.building.items import BaseItem
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS
from tsdb.log.open import open_log
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import floor_to

SERIES = 110_000  # 26 M samples: some 0.75 GB in an open window.
COLUMNS = 16  # Different values of a series; they repeat, so that the workload is small.
RECORD_SAMPLES = 5_000
NO_LIMIT = 1 << 60
PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


@dataclass(frozen=True, slots=True)
class Built:
    """A window that was built. digest: checksum of all records, in their order."""

    chunks: int
    digest: int
    peak_mb: int
    base_mb: int
    cpu_s: float


def main(argv: Sequence[str]) -> dict[str, object]:
    """Samples, peak MB and CPU seconds of each size, within the limit and, up to --whole, without one."""
    parser = argparse.ArgumentParser(prog="bench spark_burst", description=__doc__)
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--times", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--whole", type=int, default=3, help="largest multiple that is built without a limit too")
    parser.add_argument("--limit-mib", type=int, default=1024, help="limit of samples in memory")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the series and of the limit")
    arguments = parser.parse_args(argv)
    series, limit = arguments.series, arguments.limit_mib << 20
    if arguments.quick:
        series, limit = series // 100, limit // 100
    rows: list[dict[str, object]] = []
    for times in arguments.times:
        with embedded_log(1) as url:
            start_ms = _fill(url, times * series)
            row: dict[str, object] = {"times": times, "samples": times * series * SAMPLES}
            within = _apart(url, start_ms, limit)
            row |= asdict(within)
            if times <= arguments.whole:
                whole = _apart(url, start_ms, NO_LIMIT)
                assert whole.digest == within.digest, "parts make other records than the whole"
                row |= {"whole_peak_mb": whole.peak_mb, "whole_cpu_s": whole.cpu_s}
            say(str(row))
            rows.append(row)
    return {"limit_mib": limit >> 20, "rows": rows}


def _fill(url: str, series: int) -> int:
    """Write a window that has ended just now, and a tick that closes it. Returns its start."""
    end_ms = floor_to(int(time.time() * 1000) - CLOSES_MS, PRODUCTION.window_ms)
    workload = Workload(series, 1, samples=COLUMNS)
    fill(url, workload, end_ms - PRODUCTION.window_ms, record_samples=RECORD_SAMPLES)
    with open_log(url) as log:
        log.append_sync(METRICS, 0, encode_tick(), timestamp_ms=end_ms + CLOSES_MS)
    return end_ms - PRODUCTION.window_ms


def _apart(url: str, start_ms: int, limit: int) -> Built:
    """Build in a process that has done nothing else."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as one:
        return one.submit(_built, url, start_ms, limit).result()


def _built(url: str, start_ms: int, limit: int) -> Built:
    options = replace(build_options(url), window_bytes_max=limit)
    item = BaseItem(0, start_ms, start_ms + PRODUCTION.window_ms)
    base_mb, chunks, digest = _peak_mb(), 0, 0
    with open_log(url) as log, spent() as took:
        for record in build(item, log, options, SystemClock()):
            digest = zlib.crc32(record.value, zlib.crc32(record.key, digest))
            chunks += 1
    return Built(chunks, digest, _peak_mb(), base_mb, round(took.cpu_s, 1))


def _peak_mb() -> int:
    """Peak of resident memory of this process. `getrusage` would give that of the parent, from before the fork."""
    found = PEAK.search(Path("/proc/self/status").read_text())
    assert found is not None, "Linux has it"
    return round(int(found[1]) * 1024 / 1e6)
