"""Threads of the given names share one core, which they leave when other work takes it; all others keep all cores."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsdb.ops import home_core
from tsdb.ops.home_core import CROWD, LARGE_BYTES, MOVE_SHARE, HomeCore, all_cores, choose

ALL_CORES = os.sched_getaffinity(0)
loads = st.dictionaries(st.integers(0, 7), st.floats(0, 1), min_size=1)


class Waiting(threading.Thread):
    """A thread that notes its cores when it ends, and starts `child` before."""

    def __init__(self, name: str, ending: threading.Event, child: Waiting | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self.child = child
        self.cores: set[int] = set()
        self.policy = -1
        self._ending = ending

    def run(self) -> None:
        self._ending.wait(60.0)
        if self.child is not None:
            self.child.start()
            self.child.join(60.0)
        self.cores = os.sched_getaffinity(0)
        self.policy = os.sched_getscheduler(0)


@contextmanager
def running(*threads: Waiting, ending: threading.Event) -> Iterator[None]:
    for thread in threads:
        thread.start()
    yield
    ending.set()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()


def look_twice(*, interrupts: bool = True) -> None:
    core = HomeCore(r"call_\d+", interrupts=interrupts)
    core.look()  # Measures the cores.
    core.look()


def test_the_named_threads_and_those_they_start_share_one_core_and_others_keep_all() -> None:
    ending = threading.Event()
    child = Waiting("any name", ending)
    kept, also, other = Waiting("call_1", ending, child), Waiting("call_2", ending), Waiting("replay", ending)
    with running(kept, also, other, ending=ending):
        look_twice()
    assert len(kept.cores) == 1
    assert kept.cores == also.cores == child.cores
    assert other.cores == os.sched_getaffinity(0) == ALL_CORES


def test_the_named_threads_and_those_they_start_do_not_interrupt_each_other() -> None:
    ending = threading.Event()
    child = Waiting("any name", ending)
    kept, other = Waiting("call_1", ending, child), Waiting("replay", ending)
    with running(kept, other, ending=ending):
        HomeCore(r"call_\d+", interrupts=False).look()
    assert kept.policy == child.policy == os.SCHED_BATCH
    assert other.policy == os.SCHED_OTHER


def test_the_threads_of_a_crowd_interrupt_each_other_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    spent_s = [0.0]
    monkeypatch.setattr(home_core, "_of_threads", lambda threads: dict.fromkeys(threads, spent_s[0]))
    ending = threading.Event()
    threads = [Waiting(f"call_{number}", ending) for number in range(CROWD)]
    with running(*threads, ending=ending):
        core = HomeCore(r"call_\d+", interrupts=False)
        core.look()
        assert policies(threads) == {os.SCHED_BATCH}
        spent_s[0] += 0.01
        core.look()
        assert policies(threads) == {os.SCHED_OTHER}
        core.look()
        assert policies(threads) == {os.SCHED_BATCH}


def policies(threads: list[Waiting]) -> set[int]:
    return {os.sched_getscheduler(thread.native_id or 0) for thread in threads}


def test_a_policy_that_somebody_chose_stays() -> None:
    ending = threading.Event()
    thread = Waiting("call_1", ending)
    with running(thread, ending=ending):
        os.sched_setscheduler(thread.native_id or 0, os.SCHED_IDLE, os.sched_param(0))
        HomeCore(r"call_\d+", interrupts=False).look()
    assert thread.policy == os.SCHED_IDLE


def test_a_refused_policy_changes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    ending = threading.Event()
    thread = Waiting("call_1", ending)
    with running(thread, ending=ending):
        look_twice(interrupts=False)
    assert len(thread.cores) == 1


def test_the_first_look_only_measures() -> None:
    ending = threading.Event()
    thread = Waiting("call_1", ending)
    with running(thread, ending=ending):
        HomeCore(r"call_\d+").look()
    assert thread.cores == ALL_CORES


def test_a_thread_whose_whole_name_does_not_match_is_not_kept() -> None:
    ending = threading.Event()
    thread = Waiting("call_1 of a library", ending)
    with running(thread, ending=ending):
        look_twice()
    assert thread.cores == ALL_CORES


def test_a_kept_thread_has_all_cores_for_work_on_many_bytes_and_no_others() -> None:
    seen: list[set[int]] = []

    def work() -> None:
        one = {min(ALL_CORES)}
        os.sched_setaffinity(0, one)
        for size in (LARGE_BYTES - 1, LARGE_BYTES):
            with contextlib.suppress(ValueError), all_cores(size):
                seen.append(os.sched_getaffinity(0))
                raise ValueError
            seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60.0)
    one = {min(ALL_CORES)}
    assert seen == [one, one, ALL_CORES, one]


def test_without_file_descriptors_the_threads_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    core = HomeCore(r"call_\d+")
    monkeypatch.setattr(psutil, "cpu_times", no_descriptor)
    core.look()


def test_cores_that_the_machine_does_not_list_count_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_times", lambda **_: [])
    ending = threading.Event()
    thread = Waiting("call_1", ending)
    with running(thread, ending=ending):
        look_twice()
    assert len(thread.cores) == 1
    assert thread.policy == os.SCHED_OTHER


@given(loads)
def test_the_first_choice_is_the_core_with_the_least_other_work(others: dict[int, float]) -> None:
    assert others[choose(None, others)] == min(others.values())


@given(loads, st.integers(0, 7))
def test_the_threads_move_only_for_much_more_time(others: dict[int, float], home: int) -> None:
    chosen = choose(home, others)
    assert others[chosen] <= min(others.values()) + MOVE_SHARE
    if home in others and others[home] <= min(others.values()) + MOVE_SHARE:
        assert chosen == home


def test_a_core_that_the_process_may_no_longer_use_is_left() -> None:
    assert choose(3, {0: 0.9, 1: 0.5}) == 1
