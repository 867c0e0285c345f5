"""Probe: one writer that measures its writes, and how soon a read sees them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from support.servers.processes import Role
from tsdb.client import ReadOptions, WriteBatch, connect

SERIES = 20
PAUSE_S = 0.02
TIMEOUT_S = 30.0
METRIC = "probe"
NOISE_S = 0.01  # A p99 below this is scheduling noise: all processes share two cores.


@dataclass(slots=True)
class Probed:
    """Seconds of each write, and from its begin until a read had its samples."""

    write: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        write, visible = (
            [f"{p * 1e3:.1f}" for p in (_at(all_, 0.5), p99(all_))] for all_ in (self.write, self.visible)
        )
        return f"{len(self.write)} writes, p50/p99 {'/'.join(write)} ms, visible {'/'.join(visible)} ms"


def p99(seconds: list[float]) -> float:
    """The 99th percentile, in seconds."""
    return _at(seconds, 0.99)


def probe(role: Role, goes_on: Callable[[], bool]) -> Probed:
    """Write and read in turn while goes_on() is true."""
    found = Probed()
    with connect(role.grpc, timeout_s=TIMEOUT_S) as client:
        while goes_on():
            at_ms = time.time_ns() // 1_000_000
            batch = WriteBatch()
            for row in range(SERIES):
                batch.add({"__name__": METRIC, "job": "probe", "instance": "p", "row": str(row)}, at_ms, float(at_ms))
            began = time.monotonic()
            result = client.write(batch)
            found.write.append(time.monotonic() - began)
            answer = client.select(METRIC, at_ms, at_ms + 1, options=ReadOptions(after=result.tokens))
            found.visible.append(time.monotonic() - began)
            assert answer.samples == SERIES, f"{answer.samples} of {SERIES} samples answered"
            time.sleep(PAUSE_S)
    return found


def _at(seconds: list[float], share: float) -> float:
    return sorted(seconds)[int(len(seconds) * share)]
