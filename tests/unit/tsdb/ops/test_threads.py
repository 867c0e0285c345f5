"""A thread component runs until it is closed. A failure of any thread is stored and reported."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tsdb.ops.lifecycle import Component, Fallible
from tsdb.ops.threads import ThreadComponent, new_thread, report_failure, unattended, watched_threads

WITHIN_S = 60.0


class Steps(ThreadComponent):
    """Calls `step` until it is closed."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__("steps")
        self._step = step
        self.ended = False

    def _run(self) -> None:
        while not self._closing.is_set():
            self._step()
            self._closing.wait(0.001)
        self.ended = True


def test_the_thread_runs_until_close_and_join_waits_for_its_end() -> None:
    stepped = threading.Event()
    component = Steps(stepped.set)
    component.start()
    assert stepped.wait(WITHIN_S)
    component.close()
    component.close()
    assert component.join(WITHIN_S)
    assert component.ended
    assert component.failure() is None


def test_join_gives_up_after_its_timeout() -> None:
    stepped, released = threading.Event(), threading.Event()

    def step() -> None:
        stepped.set()
        released.wait()

    component = Steps(step)
    component.start()
    assert stepped.wait(WITHIN_S)
    component.close()
    assert not component.join(0.0)
    released.set()
    assert component.join(WITHIN_S)


def test_an_exception_ends_the_thread_and_is_stored() -> None:
    broken = RuntimeError("broken")

    def step() -> None:
        raise broken

    component = Steps(step)
    assert isinstance(component, Fallible)
    component.start()
    assert component.join(WITHIN_S)
    assert component.failure() is broken
    assert not component.ended


def test_a_component_closed_before_its_start_runs_no_step() -> None:
    stepped = threading.Event()
    component: Component = Steps(stepped.set)
    component.close()
    assert component.join(0.0)
    component.start()
    assert component.join(WITHIN_S)
    assert not stepped.is_set()


def test_the_thread_has_the_name_of_the_component() -> None:
    names: list[str] = []
    stepped = threading.Event()

    def step() -> None:
        names.append(threading.current_thread().name)
        stepped.set()

    component = Steps(step)
    component.start()
    assert stepped.wait(WITHIN_S)
    component.close()
    assert component.join(WITHIN_S)
    assert set(names) == {"steps"}


def test_a_failure_of_a_thread_is_received_once_and_the_hook_is_restored() -> None:
    broken, hook = RuntimeError("broken"), threading.excepthook

    def fail() -> None:
        raise broken

    with watched_threads() as failures:
        assert failures.failure() is None
        for thread in (new_thread(fail, "first"), threading.Thread(target=fail)):
            thread.start()
            thread.join(WITHIN_S)
            assert failures.failure() is broken
    assert threading.excepthook is hook


def test_the_first_failure_is_kept() -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    with watched_threads() as failures:
        assert report_failure(first, "one")
        assert report_failure(second, "two")
    assert failures.failure() is first
    assert not report_failure(second, "two")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_without_a_watcher_the_interpreter_prints_the_exception() -> None:
    seen: list[BaseException | None] = []
    before, threading.excepthook = threading.excepthook, lambda args: seen.append(args.exc_value)
    broken = RuntimeError("broken")

    def fail() -> None:
        raise broken

    try:
        thread = new_thread(fail, "alone")
        thread.start()
        thread.join(WITHIN_S)
    finally:
        threading.excepthook = before
    assert seen == [broken]


def test_a_callback_raises_nothing_and_is_reported() -> None:
    broken = ValueError("broken")

    def callback(number: int) -> None:
        assert number == 3
        raise broken

    with watched_threads() as failures:
        unattended(callback, "library")(3)
    assert failures.failure() is broken
