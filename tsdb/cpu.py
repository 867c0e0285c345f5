"""CPU: the number of cores that this process may use. Imports nothing of ours, so that everything may import it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def core_count() -> int:
    """The cores of the process's affinity, or fewer where its cgroup has a quota of CPU time, as a container has: more
    threads than that only make it wait for the next period. A part of a core counts as one."""
    # The cores of the main thread. Another thread may be bound to one core (tsdb.ops.home_core).
    cores = len(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cores()
    return cores if quota is None else max(1, min(cores, quota))


def cgroup_cores(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int | None:
    """The smallest quota of the process's cgroups and of those above them, in whole cores, rounded up. None without a
    quota.

    root: where cgroups are mounted, of version 2 or 1. own: the file with the process's cgroups.

    """
    quotas = [-(-quota // period) for quota, period in _quotas(root, own) if quota > 0 and period > 0]
    return min(quotas, default=None)


def _quotas(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    """(quota, period) in microseconds of each cgroup with a limit."""
    for line in _text(own).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            yield from _of_version_2(root, path)
        elif "cpu" in controllers.split(","):
            yield from _of_version_1(root / "cpu", path)


def _of_version_2(root: Path, path: str) -> Iterator[tuple[int, int]]:
    for folder in _upwards(root, path):
        quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
        if quota.isdigit():  # Otherwise the file has "max", or does not exist.
            yield int(quota), int(period) if period.isdigit() else 100_000


def _of_version_1(root: Path, path: str) -> Iterator[tuple[int, int]]:
    for folder in _upwards(root, path):
        quota, period = (_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit():  # Without a limit the quota is -1.
            yield int(quota), int(period)


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """The folder of a cgroup, and the folders of those above it. A container may see the path of the host while its
    cgroup is at root."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    for count in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:count])


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
