"""Compares standalone and Prometheus on the same samples: the cost of writes, disk, memory, the start after a SIGKILL,
and some queries of bench/promql.

One server runs at a time. It takes an hour of samples by remote write, 1,000 series with one sample each a request, and
then answers. It is killed, started again, and must give the same answers. Its files are counted after a regular stop:
the log of standalone, and Prometheus's write-ahead log and head chunks, before one makes chunks and the other blocks.
CPU is that of all processes of the server.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from bench.compare.compare_table import table
from bench.gateway import ingest_targets as targets
from bench.gateway.ingest_targets import IngestTarget
from bench.gateway.sender_process import REMOTE_WRITE
from bench.measure import machine, say
from bench.promql.promql_comparison import check_equal
from bench.promql.promql_questions import QUESTIONS
from bench.promql.promql_series import STEP_MS, PromqlSeries
from bench.promql.promql_side import WARM, Side, parsed

SERIES = 10_000
SECONDS = 3.0
SETTLE_S = 0.5  # bench/gateway/ingest.py explains the value.
ASKED = ("sum by rate", "sum", "quantile by", "raw JSON", "small: 1 series")
CHOSEN = [one for one in QUESTIONS if one.name in ASKED]

Opened = Callable[[Path], AbstractContextManager[IngestTarget]]
Answers = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one server. queries: percentiles in ms and CPU ms a query, by question, of one client that repeats it.

    ready_s: duration from the start of the process after a SIGKILL until it reports itself ready.
    """

    version: str
    write_cpu_s_a_million_samples: float
    write_samples_per_s: int
    rss_after_write_mib: float
    rss_after_queries_mib: float
    ready_s: float
    disk_bytes_a_sample: float
    queries: dict[str, dict[str, float]]


def main(argv: Sequence[str]) -> dict[str, object]:
    """Figures of each server, the machine, and its load before the run and after each server."""
    arguments = _arguments(argv)
    end_ms = int(time.time()) * 1000 // STEP_MS * STEP_MS - STEP_MS
    series = PromqlSeries(arguments.series, end_ms)
    loads = [os.getloadavg()]
    found: dict[str, Figures] = {}
    answers: list[Answers] = []
    for name, version, opened in _servers(arguments.prometheus):
        found[name], given = _run(version, opened, series, end_ms, arguments)
        answers.append(given)
        loads.append(os.getloadavg())
        say(f"{name}: {found[name]}")
    if len(answers) > 1:
        _check_equal(*answers, place="both servers")
    result: dict[str, object] = {
        "machine": machine(),
        "load_average": loads,
        "series": len(series.labels),
        "samples": series.values.size,
        **{name: asdict(figures) for name, figures in found.items()},
    }
    if arguments.output == "table":
        print(table(result, list(found)))
    return result


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench compare", description=__doc__)
    parser.add_argument("--series", type=int, help=f"of each of two metrics; default {SERIES}")
    parser.add_argument("--seconds", type=float, help="of each question")
    return parsed(parser, argv, SERIES, SECONDS)


def _servers(given: str | None) -> Iterator[tuple[str, str, Opened]]:
    """Name, version and a way to start each server over a folder."""
    yield targets.STANDALONE, metadata.version("kafka-tsdb"), lambda folder: targets.standalone((), folder)
    binary = targets.prometheus_binary(given)
    if binary is None:
        say("no `prometheus` binary: no control")
        return
    shown = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    version = (shown.stdout or shown.stderr).split()[2]  # "prometheus, version 2.42.0 (branch: ...": releases differ.
    yield targets.PROMETHEUS, version, lambda folder: targets.prometheus(binary, folder)


def _run(
    version: str, opened: Opened, series: PromqlSeries, end_ms: int, arguments: argparse.Namespace
) -> tuple[Figures, Answers]:
    with tempfile.TemporaryDirectory(prefix="bench-compare-") as name:
        folder = Path(name)
        with opened(folder) as target:
            side = Side(target)
            cpu_s, seconds = _write(side, series, arguments.series)
            rss_written = _rss_mib(target)
            side.measure_idle()
            queries = {one.name: side.measure(one, WARM, end_ms, arguments.seconds) for one in CHOSEN}
            rss_queried, before = _rss_mib(target), _answers(side, end_ms)
            for pid in target.pids.values():
                os.kill(pid, signal.SIGKILL)
        started = time.perf_counter()
        with opened(folder) as target:
            ready_s = time.perf_counter() - started
            side = Side(target)
            side.wait_visible(series, arguments.series)
            _check_equal(before, _answers(side, end_ms), place=f"{target.name} after SIGKILL")
            data = target.folder or folder
        disk_bytes = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    samples = series.values.size
    figures = Figures(
        version=version,
        write_cpu_s_a_million_samples=round(cpu_s / samples * 1e6, 2),
        write_samples_per_s=round(samples / seconds),
        rss_after_write_mib=rss_written,
        rss_after_queries_mib=rss_queried,
        ready_s=round(ready_s, 1),
        disk_bytes_a_sample=round(disk_bytes / samples, 2),
        queries=queries,
    )
    return figures, before


def _write(side: Side, series: PromqlSeries, count: int) -> tuple[float, float]:
    """CPU seconds of the server, and seconds until the last sample was accepted."""
    before, began = side.cpu_s(), time.perf_counter()
    series.send(side.target.addresses[REMOTE_WRITE], request_points=1)
    seconds = time.perf_counter() - began
    time.sleep(SETTLE_S)
    cpu_s = side.cpu_s() - before
    side.wait_visible(series, count)
    return cpu_s, seconds


def _rss_mib(target: IngestTarget) -> float:
    return round(sum(target.rss_mib().values()), 1)


def _answers(side: Side, end_ms: int) -> Answers:
    return {one.name: side.compared(one, end_ms) for one in CHOSEN}


def _check_equal(one: Answers, other: Answers, *, place: str) -> None:
    for name, body in one.items():
        check_equal(body, other[name], f"{place}, {name}")
