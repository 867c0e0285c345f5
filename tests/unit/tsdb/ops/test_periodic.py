"""A periodic calls its function until it is closed, and reports its failure."""

from __future__ import annotations

import threading

import pytest

from support.servers.logs import wait_until
from tsdb.ops.lifecycle import Fallible
from tsdb.ops.periodic import Periodic


def test_it_looks_at_once_and_again_until_it_is_closed() -> None:
    looks: list[int] = []
    periodic = Periodic("looks", 0.001, lambda: looks.append(1))
    assert looks == []
    periodic.start()
    wait_until(lambda: len(looks) > 2)
    periodic.close()
    assert periodic.join(60.0)
    assert periodic.failure() is None


class _Waits(threading.Event):
    """An event whose first wait closes the periodic."""

    def __init__(self, done: list[str], periodic: Periodic) -> None:
        super().__init__()
        self._done = done
        self._periodic = periodic

    def wait(self, timeout: float | None = None) -> bool:
        self._done.append("waits")
        self._periodic.close()
        return True


@pytest.mark.parametrize(("at_once", "order"), [(True, ["looks", "waits"]), (False, ["waits"])])
def test_who_has_looked_already_need_not_look_again_at_once(at_once: bool, order: list[str]) -> None:
    done: list[str] = []
    periodic = Periodic("looks", 3600.0, lambda: done.append("looks"), at_once=at_once)
    periodic._woken = _Waits(done, periodic)
    periodic.start()
    assert periodic.join(60.0)
    assert done == order


class _ClosedAmidClear(threading.Event):
    """An event whose first clear comes right after the periodic was closed."""

    def __init__(self, periodic: Periodic) -> None:
        super().__init__()
        self._periodic = periodic

    def clear(self) -> None:
        self._periodic.close()
        super().clear()


def test_one_that_is_closed_right_before_a_look_ends() -> None:
    looks: list[int] = []
    periodic = Periodic("looks", 3600.0, lambda: looks.append(1))
    periodic._woken = _ClosedAmidClear(periodic)
    periodic.start()
    assert periodic.join(60.0)
    assert looks == []


def test_one_that_is_woken_looks_before_its_time() -> None:
    looks: list[int] = []
    periodic = Periodic("looks", 3600.0, lambda: looks.append(1))
    periodic.start()
    wait_until(lambda: len(looks) == 1)
    periodic.wake()
    wait_until(lambda: len(looks) == 2)
    periodic.close()
    assert periodic.join(60.0)


def test_a_look_under_way_is_waited_for() -> None:
    looks, goes_on = threading.Event(), threading.Event()

    def look() -> None:
        looks.set()
        goes_on.wait()

    periodic = Periodic("looks", 0.0, look)
    periodic.start()
    assert looks.wait(60.0)
    periodic.close()
    assert not periodic.join(0.0)
    goes_on.set()
    assert periodic.join(60.0)


def test_what_a_look_raises_ends_it_and_is_kept() -> None:
    broken = RuntimeError("broken")

    def look() -> None:
        raise broken

    periodic = Periodic("looks", 0.0, look)
    assert isinstance(periodic, Fallible)
    periodic.start()
    assert periodic.join(60.0)
    assert periodic.failure() is broken


def test_one_that_never_began_has_nothing_to_wait_for() -> None:
    periodic = Periodic("looks", 0.0, lambda: None)
    periodic.close()
    assert periodic.join(0.0)
