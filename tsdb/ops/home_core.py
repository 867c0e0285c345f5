"""Home core: makes the threads that take turns at the GIL run on one core.

Only one thread of a Python process at a time has the GIL. With several cores, each release of it (at a system call, or
while a library works) gives it to a thread on another core, and the first thread sleeps and must be woken to go on. A
gateway with 64 connections spent more than half of its CPU on such wakes. On one core the thread that released the GIL
goes on running, and mostly has it back at once. The threads of libraries, and threads whose kernels work without the
GIL, keep all cores; a kept thread has them for work such as the expansion of a request (`all_cores`).

Where no other threads of the process need the core for long, a thread that wakes there does not interrupt the one that
runs (SCHED_BATCH): that one mostly has the GIL, so the woken thread would only find it taken and sleep again. A crowd
of working threads interrupts each other as others do: without it, some of them waited for more than half a second.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass

import psutil

from tsdb.ops.periodic import Periodic

EVERY_S = 1.0
MOVE_SHARE = 0.25  # Share of a core. The threads move to a core that has at least this much more time for them.
MOVE_CHANCE = 0.5
IDLE_SHARE = 0.05  # Share of a core. A process that used less is not measured, because a measurement takes 2 ms.
LARGE_BYTES = 1 << 19
CROWD = 32  # Number of bound threads that worked in an interval.


class HomeCore(Periodic):
    """Binds threads to the core by name. A thread that a bound thread starts is bound from its start; others after
    EVERY_S at most.

    The core is one that the process may use; it changes when other work keeps it busy. Without several cores, or
    without an affinity of threads as on macOS, it does nothing.

    """

    def __init__(self, names: str, *, interrupts: bool = True) -> None:
        """names: a regular expression for whole names of threads. interrupts: whether these threads interrupt a running
        one even when they are fewer than CROWD."""
        super().__init__("home-core", EVERY_S, self._look_if_busy)
        self._interrupts = interrupts
        self._names = re.compile(names)
        self._core: int | None = None
        self._before: _Spent | None = None
        self._process_s = time.process_time()

    def _look_if_busy(self) -> None:
        spent_s, self._process_s = time.process_time() - self._process_s, time.process_time()
        if spent_s >= IDLE_SHARE * EVERY_S:
            self.look()
        else:
            self._before = None  # An interval with an idle part would say little about the other work.

    def look(self) -> None:
        """Measure the last interval, choose the core, and keep the threads there."""
        # Without free file descriptors nothing can be measured, so the threads stay where they are.
        with suppress(OSError, psutil.Error):
            self._look()

    def _look(self) -> None:
        if not hasattr(os, "sched_setaffinity"):
            return
        # The main thread is not bound, so its cores are those of the process.
        cores = os.sched_getaffinity(os.getpid())
        kept = [
            thread.native_id
            for thread in threading.enumerate()
            if thread.native_id is not None and self._names.fullmatch(thread.name)
        ]
        before, self._before = self._before, _Spent(time.monotonic(), _of_cores(), _of_threads(kept))
        if not self._interrupts:
            is_crowd = before is not None and self._before.working(before) >= CROWD
            _set_policy(kept, os.SCHED_OTHER if is_crowd else os.SCHED_BATCH)
        if len(cores) > 1 and before is not None:
            others = self._before.by_others(before, cores, self._core)
            # The core is chosen by chance, because two processes that disturb each other on one core must not move to
            # the same core at once.
            if self._core not in others or random.random() < MOVE_CHANCE:
                self._core = choose(self._core, others)
            self._keep(kept, {self._core})
        elif len(cores) == 1 and self._core is not None:
            self._core = None
            self._keep(kept, cores)

    def _keep(self, threads: Collection[int], cores: Collection[int]) -> None:
        for thread in threads:
            with suppress(ProcessLookupError):  # It has ended.
                os.sched_setaffinity(thread, cores)


def _set_policy(threads: Collection[int], policy: int) -> None:
    """Threads that somebody gave a third policy keep it. A sandbox may refuse the change, which costs speed alone."""
    for thread in threads:
        with suppress(OSError):
            if os.sched_getscheduler(thread) in {os.SCHED_OTHER, os.SCHED_BATCH} - {policy}:
                os.sched_setscheduler(thread, policy, os.sched_param(0))


@dataclass(frozen=True, slots=True)
class _Spent:
    """CPU seconds so far: of each core by the whole machine, and of each bound thread. at: monotonic time.

    A container may use cores that its view of the machine does not list; these count as idle.

    """

    at: float
    cores: Mapping[int, float]
    threads: Mapping[int, float]

    def working(self, before: _Spent) -> int:
        """Number of bound threads that have used CPU since `before`."""
        return sum(cpu_s > before.threads.get(thread, 0.0) for thread, cpu_s in self.threads.items())

    def by_others(self, before: _Spent, cores: Collection[int], home: int | None) -> dict[int, float]:
        """The share of each core that went to other work since `before`."""
        elapsed_s = max(self.at - before.at, 1e-3)
        ours_s = sum(cpu_s - before.threads.get(thread, cpu_s) for thread, cpu_s in self.threads.items())
        busy_s = {core: self.cores.get(core, 0.0) - before.cores.get(core, 0.0) for core in cores}
        return {core: max(0.0, busy_s[core] - (ours_s if core == home else 0.0)) / elapsed_s for core in cores}


_NO_CHANGE: AbstractContextManager[None] = nullcontext()


def all_cores(size: int) -> AbstractContextManager[None]:
    """Inside the block this thread may use all cores of the process, for work without the GIL on `size` bytes.

    No effect below LARGE_BYTES, which take about a millisecond.
    """
    return _on_all_cores() if size >= LARGE_BYTES and hasattr(os, "sched_getaffinity") else _NO_CHANGE


@contextmanager
def _on_all_cores() -> Iterator[None]:
    kept, cores = os.sched_getaffinity(0), os.sched_getaffinity(os.getpid())
    if kept == cores:
        yield
        return
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, kept)


def choose(home: int | None, others: Mapping[int, float]) -> int:
    """The core for the next interval. others: the share of each core that other work takes; not empty."""
    idlest = min(others, key=lambda core: others[core])
    if home is None or home not in others:
        return idlest
    return idlest if others[home] - others[idlest] > MOVE_SHARE else home


def _of_cores() -> dict[int, float]:
    return {
        core: sum(times) - times.idle - getattr(times, "iowait", 0.0)
        for core, times in enumerate(psutil.cpu_times(percpu=True))
    }


def _of_threads(threads: Collection[int]) -> dict[int, float]:
    wanted = set(threads)
    return {one.id: one.user_time + one.system_time for one in psutil.Process().threads() if one.id in wanted}
