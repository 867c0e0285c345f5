"""Order of a test run: files that took longest begin first, and files that share servers run in one process.

`tests/durations.json` has the seconds of each file of a recorded run, on 2 cores. Every run of more than one process
writes its own seconds to `build/test-durations.json`, slowest first; CI keeps that file. Copy it over the recorded
one when the order no longer fits. `build/test-cpu.json` has the CPU seconds of each file, with those of its processes
that have ended. A file with many delays all tests that run beside it.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests/durations.json"
WRITTEN = ROOT / "build/test-durations.json"
CPU_WRITTEN = ROOT / "build/test-cpu.json"
SHORTEST_S = 1.0  # A shorter file is not recorded.
NEW_S = 20.0  # A file that is not recorded, where tests start servers.
WITHOUT_SERVERS = ("tests/unit/", "tests/property/")

# Name of a group and its files, the first that fits. A JVM with its Spark workers takes a gigabyte, so there are two,
# which take as long as each other. The pages share a server. One file at a time has three brokers, two have a broker to
# stop or freeze, and one a Cassandra node.
TOGETHER = {
    "jobs and pipeline of spark": ("tests/spark/jobs/", "tests/spark/test_pipeline.py"),
    "spark": ("tests/spark/",),
    "pages": ("tests/e2e/ui/",),
    "a broker of outages": (
        "tests/fault/test_kafka_outage.py",
        "tests/fault/test_lagging_readers.py",
        "tests/fault/test_prometheus_sender.py",
        "tests/integration/test_kafka_bootstrap.py",
    ),
    "a broker of starts": (
        "tests/e2e/test_chunker_role.py",
        "tests/e2e/test_readiness.py",
        "tests/integration/consumer/test_parallel_consumer_starts.py",
        "tests/integration/store/test_status_of_parts.py",
        "tests/integration/store/test_store_kafka.py",
    ),
    "three brokers": ("tests/fault/test_three_brokers.py", "tests/integration/test_kafka_faults.py"),
    "node": (
        "tests/fault/test_cassandra_outage.py",
        "tests/fault/test_history_outage.py",
        "tests/fault/test_stuck_parts.py",
    ),
}


@cache
def group_of(file: str) -> str:
    """The unit that one process runs: a group of TOGETHER, or the file."""
    return next((group for group, starts in TOGETHER.items() if file.startswith(starts)), file)


def group_of_item(item: pytest.Item) -> str:
    """The group of a collected test."""
    return group_of(_file(item.nodeid))


def longest_first(items: list[pytest.Item]) -> None:
    """Sort by group, the longest first; the tests of a file stay together and in their order."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for file in dict.fromkeys(_file(item.nodeid) for item in items):
        seconds[group_of(file)] += _expected_s(file)
    items.sort(key=lambda item: -seconds[group_of_item(item)])


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types.
    """A group in one process. The first process begins with tests without servers: they keep a core busy, and those of
    the others mostly wait. With half of the processes computing at any time, brokers waited for seconds."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(_file(nodeid))

    def _assign_work_unit(self, node: Any) -> None:
        computes = self.nodes.index(node) == 0
        groups = (group for group in self.workqueue if group.startswith(WITHOUT_SERVERS) == computes)
        group = next(groups, None) or next(iter(self.workqueue))
        tests = self.assigned_work.setdefault(node, {})[group] = self.workqueue.pop(group)
        node.send_runtest_some([self._places[nodeid] for nodeid in tests])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a test that has ended. xdist counts the tests that are left with each event, six times a test: of all
        files it took seconds."""
        super().mark_test_complete(node, item_index, duration)
        nodeid, groups = self.collection[item_index], self.assigned_work[node]
        group = self._split_scope(nodeid)
        del groups[group][nodeid]
        if not groups[group]:
            del groups[group]

    @cached_property
    def _places(self) -> dict[str, int]:
        """Test -> its place in the list that all processes collected."""
        return {nodeid: place for place, nodeid in enumerate(self.collection)}


class CpuMeter:
    """A pytest plugin of each process that runs tests: each report gets the CPU seconds since the last one."""

    def __init__(self) -> None:
        self._spent_s = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before_s, self._spent_s = self._spent_s, _cpu_s()
        report.cpu_s = self._spent_s - before_s  # type: ignore[attr-defined]  # xdist sends all attributes.
        return report


def _cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


class Recorder:
    """A pytest plugin of the process that begins a run: adds up the seconds of each file."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cpu_s: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_file(report.nodeid)] += report.duration
        self._cpu_s[_file(report.nodeid)] += getattr(report, "cpu_s", 0.0)

    def pytest_sessionfinish(self) -> None:
        WRITTEN.parent.mkdir(exist_ok=True)
        WRITTEN.write_text(_text(self._seconds.items()))
        CPU_WRITTEN.write_text(_text(self._cpu_s.items()))


def _text(seconds: Iterable[tuple[str, float]]) -> str:
    slowest = sorted(seconds, key=lambda one: (-one[1], one[0]))
    return json.dumps({file: round(took, 1) for file, took in slowest if took >= SHORTEST_S}, indent=0) + "\n"


def _expected_s(file: str) -> float:
    return _recorded().get(file, 0.0 if file.startswith(WITHOUT_SERVERS) else NEW_S)


@cache
def _recorded() -> dict[str, float]:
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
