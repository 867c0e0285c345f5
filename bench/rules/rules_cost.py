"""Measures rules each minute: CPU of standalone with `--rules`, of a Prometheus, and of vmalert over standalone.

Each target gets the same series by remote write, with samples up to minutes after the measurement, so that nothing is
written meanwhile but results. Once it has worked off the samples, what it uses without rules is measured. Then it gets
the rules. After a first evaluation its CPU is measured over whole minutes, less what it uses without rules.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.gateway import ingest_targets as targets
from bench.gateway.ingest_bodies import RemoteWriteBodies
from bench.gateway.ingest_senders import OK, HttpSender
from bench.gateway.ingest_series import WorkloadRequest
from bench.gateway.ingest_targets import IngestTarget
from bench.gateway.sender_process import REMOTE_WRITE
from bench.measure import machine, say
from bench.promql.promql_clients import PromqlConnection
from stack.ports import Ports
from tsdb.model.labels import canonical_labels

SERIES, METRICS, RULES, MINUTES = 100_000, 100, 1_000, 2
JOBS = 10
STEP_MS = 15_000
# A gateway accepts samples of the next five minutes.
BEFORE_MS, AFTER_MS = 6 * 60_000, 285_000
REQUEST_SERIES = 1_000
VMALERT = "TSDB_VMALERT"
# A target is idle once it used at most IDLE_CORES in each of the last IDLE_PARTS periods.
IDLE_S, IDLE_PARTS, IDLE_CORES, IDLE_WITHIN_S = 5.0, 6, 0.05, 300.0
EXPRESSIONS = (
    "sum by (job) (rate({m}[5m]))",
    "sum(rate({m}[5m]))",
    "max by (job) ({m})",
    "avg by (job) ({m})",
    "count by (job) ({m} > 5e8)",
    "sum without (instance) (increase({m}[2m]))",
    "quantile by (job) (0.9, {m})",
    "rec_{n}_0 / on (job) rec_{n}_2",
    "{m} > 1e12",
    "sum by (job) (rate({m}[5m])) > 1e12",
)
ALERTS = 2  # The last expressions are alerts.


def main(argv: Sequence[str]) -> dict[str, object]:
    """CPU seconds a minute of each target."""
    arguments = _arguments(argv)
    with TemporaryDirectory(prefix="bench-rules-") as scratch:
        rules = Path(scratch) / "rules.yaml"
        found = {name: _measured(name, rules, arguments) for name in arguments.target}
    ours = found.get(targets.STANDALONE)
    return {
        "machine": machine(),
        "load_average": os.getloadavg(),
        "series": arguments.series,
        "rules": arguments.rules,
        **found,
        "ratios": {
            name: round(ours["cpu_s_a_minute"] / other["cpu_s_a_minute"], 2)
            for name, other in found.items()
            if ours is not None and other is not ours
        },
    }


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench rules_cost", description=__doc__)
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--rules", type=int, default=RULES)
    parser.add_argument("--minutes", type=int, default=MINUTES)
    parser.add_argument("--prometheus", help="path of the control's binary; default: from PATH or beside this Python")
    parser.add_argument("--vmalert", default=os.environ.get(VMALERT), help=f"path of vmalert; default: ${VMALERT}")
    parser.add_argument("--quick", action="store_true", help="2,000 series, 20 rules, one minute")
    parser.add_argument("--target", action="append", choices=(targets.STANDALONE, targets.PROMETHEUS, "vmalert"))
    found = parser.parse_args(argv)
    if found.quick:
        found.series, found.rules, found.minutes = 2_000, 20, 1
    found.prometheus = targets.prometheus_binary(found.prometheus)
    there = {targets.PROMETHEUS: found.prometheus, "vmalert": found.vmalert, targets.STANDALONE: "it"}
    wanted = found.target or [targets.STANDALONE, targets.PROMETHEUS, "vmalert"]
    for name in wanted:
        if not there[name]:
            say(f"no binary of {name}: not measured")
    found.target = [name for name in wanted if there[name]]
    return found


def rule_file(rules: int, interval: str = "1m") -> str:
    """A group for each metric, with ten rules."""
    lines = ["groups:"]
    for number in range(-(-rules // len(EXPRESSIONS))):
        lines += [f"- name: g{number}", f"  interval: {interval}", "  rules:"]
        for at, expression in enumerate(EXPRESSIONS):
            kind = "alert" if at >= len(EXPRESSIONS) - ALERTS else "record"
            text = expression.format(m=f"metric_{number % METRICS:03d}", n=number)
            lines.append(f"  - {{{kind}: rec_{number}_{at}, expr: '{text}'}}")
    return "\n".join(lines) + "\n"


def send(address: str, series: int) -> None:
    """Send all samples of all series."""
    asyncio.run(_send(address, series))


async def _send(address: str, series: int) -> None:
    labels = [series_labels(number, series) for number in range(series)]
    sender, encode = HttpSender(address), RemoteWriteBodies(labels)
    now_ms = int(time.time() * 1000)
    times = np.arange(now_ms - BEFORE_MS, now_ms + AFTER_MS, STEP_MS, dtype=np.int64)
    rng = np.random.default_rng(1)
    await sender.open(1)
    for first in range(0, series, REQUEST_SERIES):
        rows = np.arange(first, min(first + REQUEST_SERIES, series))
        steps = np.cumsum(rng.integers(1, 5_000, (len(rows), len(times))), axis=1) + 10**8
        starts = np.arange(len(rows) + 1) * len(times)
        request = WorkloadRequest(
            (first, steps.size), rows, starts, np.tile(times, len(rows)), steps.astype(np.float64).ravel()
        )
        answer = await sender.send(0, encode(request))
        if answer != OK:
            raise RuntimeError(f"samples were refused: {answer}")
    await sender.close()


def series_labels(number: int, series: int) -> bytes:
    """Canonical labels of a series among `series`, which are spread over METRICS metrics."""
    metric, instance = divmod(number, max(series // METRICS, 1))
    return canonical_labels(
        {
            "__name__": f"metric_{metric:03d}",
            "job": f"job_{instance % JOBS}",
            "instance": f"host-{instance:05d}:9100",
            "cluster": "main",
        }
    )


@dataclass(frozen=True, slots=True)
class _Side:
    target: IngestTarget

    def query(self, text: str) -> bytes:
        """The answer to an instant query."""
        with PromqlConnection(self.target.addresses[REMOTE_WRITE].partition("/")[0]) as client:
            return client.body(f"/api/v1/query?query={text}")

    def cpu_s(self) -> float:
        """CPU seconds so far."""
        return sum(self.target.cpu_s().values())


def _measured(name: str, rules: Path, arguments: argparse.Namespace) -> dict[str, float]:
    rules.write_text("groups: []\n")
    with ExitStack() as stack:
        target = stack.enter_context(_opened(name, rules, arguments))
        address = target.addresses[REMOTE_WRITE]
        began = time.monotonic()
        send(address, arguments.series)
        say(f"{name}: filled in {time.monotonic() - began:.1f} s")
        side = _Side(target)
        idle = _idle_cores(side)
        say(f"{name}: idle after {time.monotonic() - began:.1f} s, {idle:.4f} cores")
        rules.write_text(rule_file(arguments.rules))
        host = address.partition("/")[0]
        if name == targets.PROMETHEUS:
            urllib.request.urlopen(f"http://{host}/-/reload", b"", timeout=30).close()
        if name == "vmalert":
            target.pids["vmalert"] = stack.enter_context(vmalert(arguments.vmalert, rules, host))
        last = -(-arguments.rules // len(EXPRESSIONS)) - 1
        give_up_at = time.monotonic() + 150
        while b'"job_0"' not in side.query(f"rec_{last}_7"):
            if time.monotonic() > give_up_at:
                raise RuntimeError(f"{name} recorded nothing")
            time.sleep(1)
        # Groups have their times within the minute, which is over for the first evaluation here.
        time.sleep(5)
        cores = _cores(side, 60.0 * arguments.minutes)
        if cores < idle:
            raise RuntimeError(f"{name} used {cores:.4f} cores with rules and {idle:.4f} before: it was not idle")
        found = {
            "cpu_s_a_minute": round((cores - idle) * 60, 3),
            "idle_cores": round(idle, 4),
            "rss_mib": round(sum(target.rss_mib().values())),
        }
        say(f"{name}: {found}")
        return found


def _idle_cores(side: _Side) -> float:
    """Cores that a target uses without rules, once it has worked off what it was filled with."""
    parts: list[float] = []
    give_up_at = time.monotonic() + IDLE_WITHIN_S
    while len(parts) < IDLE_PARTS or max(parts[-IDLE_PARTS:]) > IDLE_CORES:
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"not idle after {IDLE_WITHIN_S:.0f} s: {parts[-IDLE_PARTS:]} cores")
        parts.append(_cores(side, IDLE_S))
    return sum(parts[-IDLE_PARTS:]) / IDLE_PARTS


def _cores(side: _Side, seconds: float) -> float:
    cpu, began = side.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (side.cpu_s() - cpu) / (time.monotonic() - began)


@contextmanager
def _opened(name: str, rules: Path, arguments: argparse.Namespace) -> Iterator[IngestTarget]:
    if name == targets.PROMETHEUS:
        with TemporaryDirectory(prefix="bench-prometheus-") as folder:
            files = f"rule_files: [{rules}]\n"
            with targets.prometheus(
                arguments.prometheus, Path(folder), ["--web.enable-lifecycle"], more_config=files
            ) as target:
                yield target
        return
    flags = ["--rules", str(rules)] if name == targets.STANDALONE else []
    with targets.standalone(flags) as target:
        yield target


@contextmanager
def vmalert(program: str, rules: Path, host: str, more_flags: Sequence[str] = ()) -> Iterator[int]:
    """The process id of a vmalert that reads from a server and writes results there."""
    with Ports(1) as ports:
        flags = [f"-rule={rules}", f"-datasource.url=http://{host}", f"-remoteWrite.url=http://{host}"]
        flags += ["-notifier.blackhole", "-evaluationInterval=1m", f"-httpListenAddr=127.0.0.1:{ports.numbers[0]}"]
        child = subprocess.Popen([program, *flags, *more_flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield child.pid
        finally:
            child.terminate()
            child.wait(60)
