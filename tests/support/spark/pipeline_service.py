"""`tsdb spark pipeline` and `run` as a service: output while it runs, and its end by a signal to its processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from stack.ports import Ports
from support.data.heads import announcement, id_of
from support.oracles.chunk_twin import pack_of
from support.servers.logs import LogFactory, wait_until
from support.servers.processes import TSDB
from support.spark.spark import CONF
from tsdb.codec.records.log_record import encode_record
from tsdb.log.interface import METRICS, SERIES
from tsdb.log.meta import write_meta
from tsdb.model.clock import ManualClock
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import DEMO
from tsdb.model.window import index_epoch

APPENDS = 'tsdb_chunk_stage_appends_total{engine="spark"}'
WITHIN_S = 120.0
PARTITIONS = 2
Strike = Callable[[subprocess.Popen[bytes]], None]


def as_timeout(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the process group, as `timeout` and shells send it."""
    os.killpg(process.pid, signal.SIGTERM)


def as_systemd(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to every process of the service: driver, JVM, daemon and workers."""
    of_all = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    assert len(of_all) > 2, of_all
    for one in of_all:
        with suppress(psutil.NoSuchProcess):  # The driver, which has the signal already, ended it.
            one.send_signal(signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Ended:
    """Answers of a service. ready: the answer of `/-/ready` just before its end. summary: the JSON object that it
    printed.
    """

    ready: Any
    summary: Any


def ends_well(
    strike: Strike,
    folder: Path,
    *,
    job: str = "pipeline",
    options: tuple[str, ...] = (),
    until: Callable[[str], bool] = lambda http: True,
) -> Ended:
    """The summary and exit code 0, and before it readiness by partition, counters of tasks and lines of progress.

    until: holds of the service's HTTP address before the strike.
    """
    ports = Ports(1)
    http = f"127.0.0.1:{ports.numbers[0]}"
    err = folder / "stderr"
    url = recorded(folder)
    command = [*TSDB, "spark", job, "--log", url, "--time-set", "demo", "--http", http, "--output", "json"]
    command += [
        "--trigger",
        "100ms",
        "--master",
        "local[2]",
        *options,
    ]
    command += [word for key, value in CONF.items() for word in ("--conf", f"{key}={value}")]
    with (
        err.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True) as running,
    ):
        wait_until(lambda: running.poll() is not None or emitted(http), WITHIN_S)
        wait_until(lambda: running.poll() is not None or until(http), WITHIN_S)
        assert running.poll() is None, err.read_text()[-4000:]
        ready = json.loads(get(f"http://{http}/-/ready"))
        appends = metric(http, APPENDS)
        wait_until(lambda: "records behind" in err.read_text(), WITHIN_S)
        strike(running)
        out = running.communicate(timeout=WITHIN_S)[0]
    ports.close()
    assert running.returncode == 0, err.read_text()[-6000:]
    summary = json.loads(out)
    assert (summary["job"], summary["ok"]) == (job, True)
    assert summary["windows"] >= 1
    assert not re.search("^(error:|to run the same again)", err.read_text(), re.MULTILINE), err.read_text()[-4000:]
    assert ready["ready"]
    assert sorted(ready["partitions"]) == ["0", "1"]
    assert {"lag_records", "windows_overdue", "position", "emitted_through_ms", "last_commit_ms", "engine"} <= set(
        ready["partitions"]["0"]
    )
    assert appends >= 1
    assert re.search(r"^pipeline: \d+ batches, \d+ windows, \d+ chunks, \d+ records behind$", err.read_text(), re.M)
    return Ended(ready, summary)


def recorded(folder: Path) -> str:
    """The URL of an embedded log with a sample a second over the last few windows, most of which are closed."""
    clock = ManualClock(time.time_ns() // 1_000_000 - 5 * DEMO.window_ms)
    with LogFactory(f"sqlite:///{folder}/log.db", "") as logs:
        logs.create(PARTITIONS)
        log = logs.open(clock=clock)
        write_meta(log, MetaSettings(partitions=PARTITIONS, time_set=DEMO))
        for partition in range(PARTITIONS):
            key, value = announcement(partition, index_epoch(id_of(partition), clock.now_ms()))
            log.append_sync(SERIES, partition, value, key=key)
        for _ in range(4 * DEMO.window_ms // 1000):
            clock.advance(1000)
            for partition in range(PARTITIONS):
                log.append_sync(METRICS, partition, one_sample(partition, clock.now_ms()))
        return logs.url


def one_sample(number: int, now_ms: int) -> bytes:
    packs, lengths = np.array([pack_of(number)], np.uint64), np.ones(1, np.uint32)
    return encode_record(packs, lengths, np.array([id_of(number)], np.uint64), np.array([now_ms]), np.ones(1))


def emitted(http: str) -> bool:
    """Whether the first chunks are written."""
    try:
        return metric(http, APPENDS) > 0
    except OSError:
        return False


def metric(http: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} ([0-9.e+]+)$", get(f"http://{http}/metrics").decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read()
