"""Attacks the promise that pages harm no reader: 20 open explorers refresh a graph each second while samples flow.
Reads stay fast, memory stays bounded, and pages that are gone cost nothing.
"""

from __future__ import annotations

import http.client
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest

from support.api.explorers import Explorers
from support.drills.bystander import RssPeak
from support.promql.differential.standalone import recent_base_ms
from support.promql.load.flow import METRIC, flowing
from support.promql.load.probe import NOISE_S, p99
from support.promql.load.series import fill
from support.servers.processes import Role

EXPLORERS = 20
SERIES = 2_000
SECONDS = 30.0
TIMES_QUIET_MAX = 1.5
GROWTH_BYTES_MAX = 300 << 20
GONE_WITHIN_S = 10.0
IDLE_SHARE_MAX = 1.25

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def test_20_open_explorers_leave_reads_fast_and_cost_nothing_when_gone(tmp_path: Path) -> None:
    with Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "store")) as role:
        fill(role.http, recent_base_ms(), SERIES)
        with flowing(role.http):
            _read(role.http, SECONDS / 3)  # Kernels and caches.
            idle_before = _cpu_share(role.process.pid)
            quiet = _read(role.http, SECONDS)
            query = f"sum by (group) (rate({METRIC}[1m]))"
            with RssPeak(role.process.pid) as rss, Explorers(role.http, EXPLORERS, query) as explorers:
                explorers.wait_for(EXPLORERS)
                loaded = _read(role.http, SECONDS)
                graphs = explorers.drain()
            time.sleep(GONE_WITHIN_S)
            idle_after = _cpu_share(role.process.pid)
    print(f"p99 of reads {p99(quiet) * 1e3:.1f} ms, with explorers {p99(loaded) * 1e3:.1f} ms; {graphs} graphs")
    print(f"RSS +{rss.grown_bytes >> 20} MiB; cores in use before {idle_before:.2f}, after {idle_after:.2f}")
    assert graphs >= EXPLORERS * SECONDS / 4
    assert p99(loaded) <= TIMES_QUIET_MAX * max(p99(quiet), NOISE_S)
    assert rss.grown_bytes <= GROWTH_BYTES_MAX
    assert idle_after <= IDLE_SHARE_MAX * idle_before + 0.05


def _read(address: str, seconds: float) -> list[float]:
    """Seconds of each small read, one after another with a pause."""
    found = []
    path = "/api/v1/query?" + urlencode({"query": f'{METRIC}{{row="7"}}'})
    until = time.monotonic() + seconds
    with closing(http.client.HTTPConnection(address, timeout=30.0)) as connection:
        while time.monotonic() < until:
            began = time.monotonic()
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
            found.append(time.monotonic() - began)
            time.sleep(0.02)
    return found


def _cpu_share(pid: int, seconds: float = 10.0) -> float:
    """Cores that a process uses, over some seconds."""
    process = psutil.Process(pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / seconds
