"""Cold start: from the start of a store process until all partitions are ready, with W(100,000) in the log (24 M
samples), on a real broker and on the embedded log; then again with snapshots and a tail that came after them.

The controls are the same start over an empty log, and the start without snapshots. Kernels are compiled beforehand. A
store with snapshots is killed by SIGKILL once they are written; its answers after the start are compared with those of
the store without.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bench.ground import PARTITIONS, ago_ms, embedded_log, fill, kafka_log
from bench.measure import rss_mib, say
from bench.store_process import StoreProcess
from bench.workload import INTERVAL_MS, SAMPLES, Workload
from tsdb.client import connect

RECORD_SAMPLES = 1_000  # A gateway that cuts a request of some thousand series by partition makes such records.
TAIL_SAMPLES = 2  # Samples of each series after the snapshots.
WRITTEN_WITHIN_S = 120.0
COMPARED = '{instance=~"host-...[0-3]1:9100"}'  # 4 % of the instances.


def main(argv: Sequence[str]) -> dict[str, object]:
    """Seconds to ready, CPU seconds and RSS, medians, for each log."""
    parser = argparse.ArgumentParser(prog="bench cold_start", description=__doc__)
    parser.add_argument("--series", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--embedded", action="store_true", help="the embedded log alone")
    parser.add_argument("--quick", action="store_true", help="a tenth of the series, one round")
    arguments = parser.parse_args(argv)
    series, rounds = (arguments.series // 10, 1) if arguments.quick else (arguments.series, arguments.rounds)
    workload = Workload(series, PARTITIONS, samples=SAMPLES + TAIL_SAMPLES)
    found: dict[str, object] = {"samples": series * SAMPLES}
    if not arguments.embedded:
        found["kafka"] = _measure(kafka_log(PARTITIONS), workload, rounds)
    return found | {"sqlite": _measure(embedded_log(PARTITIONS), workload, rounds)}


def _measure(ground: AbstractContextManager[str], workload: Workload, rounds: int) -> dict[str, object]:
    samples = len(workload.labels) * SAMPLES
    with ground as url:
        _start(url, 0)  # Compiles missing kernels.
        empty = _start(url, 0)
        start_ms = ago_ms()
        records = fill(url, workload, start_ms, record_samples=RECORD_SAMPLES)
        runs = [_start(url, samples) for _ in range(rounds)]
        with tempfile.TemporaryDirectory(prefix="bench-snapshots-") as folder:
            restored = _restored(url, workload, start_ms, folder, rounds)
    cold = _medians(runs)
    say(f"{url.split(':')[0]}: {runs}")
    return {
        "records": records,
        **cold,
        "empty_ready_s": empty["ready_s"],
        "empty_cpu_s": empty["cpu_s"],
        "samples_per_cpu_s": round(samples / max(cold["cpu_s"] - empty["cpu_s"], 0.01)),
        "snapshots": restored,
    }


def _restored(url: str, workload: Workload, start_ms: int, folder: str, rounds: int) -> dict[str, object]:
    """Starts from snapshots with a tail of TAIL_SAMPLES samples a series."""
    options = ("--snapshot-dir", folder)
    with StoreProcess(url, *options) as store:
        store.wait_ready()
        began_at = time.monotonic()
        size = _wait_for_files(Path(folder))
        written_s = time.monotonic() - began_at
        store.kill()
    tail_ms = start_ms + SAMPLES * INTERVAL_MS
    fill(url, workload, tail_ms, samples=TAIL_SAMPLES, record_samples=RECORD_SAMPLES, first=SAMPLES)
    total = len(workload.labels) * (SAMPLES + TAIL_SAMPLES)
    runs = [_start(url, total, *options) for _ in range(rounds)]
    with StoreProcess(url, *options) as restored, StoreProcess(url) as replayed:
        answers = [_answer(store, start_ms, tail_ms + TAIL_SAMPLES * INTERVAL_MS) for store in (restored, replayed)]
    assert answers[0] == answers[1], "a store with snapshots answers other bytes than one without"
    return {
        **_medians(runs),
        "tail_samples": total - len(workload.labels) * SAMPLES,
        "file_mib": round(size / (1 << 20), 1),
        "written_s": round(written_s, 2),
        "compared_bytes": sum(map(len, answers[0])),
    }


def _wait_for_files(folder: Path) -> int:
    """Bytes of the snapshots of all partitions, once they are written."""
    give_up_at = time.monotonic() + WRITTEN_WITHIN_S
    while len(files := list(folder.glob("*.snapshot"))) < PARTITIONS:
        assert time.monotonic() < give_up_at, f"{len(files)} of {PARTITIONS} snapshots are written"
        time.sleep(0.02)
    return sum(file.stat().st_size for file in files)


def _answer(store: StoreProcess, start_ms: int, end_ms: int) -> list[bytes]:
    store.wait_ready()
    with connect(store.address, timeout_s=120.0) as client:
        got = client.select(COMPARED, start_ms, end_ms, encoding="raw")
    assert got.samples, "nothing to compare"
    return [array.tobytes() for array in (got.series_ids, got.starts, got.ts_ms, got.values)]


def _start(url: str, samples: int, *options: str) -> dict[str, float]:
    with StoreProcess(url, *options) as store:
        ready = store.wait_ready()
        assert ready["samples"] == samples, f"ready with {ready['samples']} of {samples} samples"
        rss = rss_mib(store.pid)
        store.kill()
    return {**{name: float(ready[name]) for name in ("ready_s", "replay_s", "cpu_s")}, "rss_at_ready_mib": rss}


def _medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}
