"""Samples behind the tests of pages: the same in each run but for their times, which end now.

Beside series of the usual kind there are 500 of one metric, and some whose labels try to become a part of the page.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from support.promql.differential.dataset import StoredSamples
from support.promql.differential.prometheus import write
from support.servers.processes import Role, wait_for_samples
from tsdb.selector.selectors import METRIC_NAME

STEP_MS = 15_000
SAMPLES = 80  # Samples of each series: twenty minutes.
FLEET = 500
# Larger labels than the defaults allow, so that a page gets them.
ROLE_FLAGS = ("--label-value-bytes-max", "20000", "--labels-bytes-max", "60000")
HOSTILE = (
    "<img src=x onerror=\"document.title='broken'\">",
    "</script><script>document.title='broken'</script>",
    "\"><svg onload=document.title='broken'>",
    "{{ 7 * 7 }} ${7 * 7} {% raw %}",
    "javascript:document.title='broken'",
    "a\x00b\x07c\x1b[31md\u202ee\nf",
    "x" * 10_240,
)
WITHIN_S = 60.0


@dataclass(frozen=True)
class Seeded:
    """A process with the samples. end_ms: the time of the newest."""

    role: Role
    end_ms: int

    @property
    def origin(self) -> str:
        return f"http://{self.role.http}"

    @property
    def start_ms(self) -> int:
        return self.end_ms - (SAMPLES - 1) * STEP_MS


def seeded(role: Role) -> Seeded:
    """Write the samples to a process and wait until reads see all."""
    end_ms = time.time_ns() // 1_000_000 // STEP_MS * STEP_MS
    series = _series([end_ms - STEP_MS * (SAMPLES - 1 - at) for at in range(SAMPLES)])
    write(role.http, series)
    expected = sum(len(one.samples) for one in series)
    wait_for_samples(role.grpc, expected, WITHIN_S)
    return Seeded(role, end_ms)


def _series(times: list[int]) -> list[StoredSamples]:
    def waves(offset: float) -> list[tuple[int, float]]:
        return [(ms, 20 + offset + 5 * math.sin(at / 8 + offset)) for at, ms in enumerate(times)]

    named: list[tuple[dict[str, str], list[tuple[int, float]]]] = []
    for number, room in enumerate(("attic", "kitchen", "office")):
        named.append(({METRIC_NAME: "temperature_celsius", "room": room, "job": "house"}, waves(4.0 * number)))
    for number in range(4):
        labels = {METRIC_NAME: "requests_total", "instance": f"web-{number}:80", "job": "web"}
        named.append((labels, [(ms, float((number + 1) * at * 30)) for at, ms in enumerate(times)]))
    for number in range(FLEET):
        named.append(({METRIC_NAME: "fleet_load", "host": f"host-{number:03}", "job": "fleet"}, waves(number / 9)))
    for number, text in enumerate(HOSTILE):
        named.append(({METRIC_NAME: "hostile", "number": str(number), "text": text, "job": text}, waves(number)))
    return [StoredSamples(tuple(sorted(labels.items())), samples) for labels, samples in named]
