"""Cores of a process: those of its affinity, or of the quota of its cgroup where that is less."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tsdb import cpu
from tsdb.config.store import StoreSettings
from tsdb.cpu import cgroup_cores, core_count

CASES: dict[str, tuple[str, dict[str, str], int | None]] = {
    "no cgroups": ("", {}, None),
    "no limit": ("0::/\n", {"cpu.max": "max 100000\n"}, None),
    "two cores": ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
    "one and a half": ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
    "a tenth": ("0::/\n", {"cpu.max": "10000 100000\n"}, 1),
    "another period": ("0::/\n", {"cpu.max": "30000 10000\n"}, 3),
    "without a period": ("0::/\n", {"cpu.max": "400000\n"}, 4),
    "the pod above has less": (
        "0::/kubepods/pod1/c1\n",
        {"kubepods/pod1/c1/cpu.max": "800000 100000", "kubepods/pod1/cpu.max": "300000 100000"},
        3,
    ),
    "a path of the host, seen from a container": ("0::/../../pod1/c1\n", {"cpu.max": "500000 100000"}, 5),
    "no file of this controller": ("0::/a/b\n", {"memory.max": "max"}, None),
    "damaged": ("0::/\n", {"cpu.max": "x y z"}, None),
    "zero": ("0::/\n", {"cpu.max": "0 0"}, None),
    "version 1": (
        "3:cpu,cpuacct:/docker/c1\n2:memory:/docker/c1\n",
        {"cpu/docker/c1/cpu.cfs_quota_us": "250000", "cpu/docker/c1/cpu.cfs_period_us": "100000"},
        3,
    ),
    "version 1 without a limit": (
        "3:cpu,cpuacct:/\n",
        {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_quota_of_the_cgroup_is_read(tmp_path: Path, case: str) -> None:
    own, files, cores = CASES[case]
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert cgroup_cores(tmp_path / "cgroup", tmp_path / "own") == cores


def test_threads_and_workers_are_as_many_as_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = len(os.sched_getaffinity(os.getpid()))
    for quota, expected in ((None, cores), (1, 1), (cores + 5, cores)):
        monkeypatch.setattr(cpu, "cgroup_cores", lambda quota=quota: quota)
        assert core_count() == expected
        assert StoreSettings.model_validate({"log": "kafka://b:9092"}).worker_count() == expected
