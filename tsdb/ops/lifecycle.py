"""The life of a process: start the components in order, wait for a signal or a failure, end in the reverse order.

All parts of an ending share one deadline. The first SIGTERM or SIGINT drains; a second one, or the deadline, aborts.
Work that outlives even that ends with the process: what was accepted is in the log.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Protocol, runtime_checkable

from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger

log = get_logger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1
POLL_S = 0.2  # how soon a failed component is noticed
JOIN_SLICE_S = 0.2  # how soon a second signal ends a drain
ABORT_SHARE = 0.2  # Of drain_s, kept for what comes after the drain: aborting, and the end of the interpreter.
ABORT_S_MAX = 2.0
LOG_S_MAX = 0.5  # A pipe that nobody reads must not keep the process.
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock, handed down through everything that must be done by then."""

    at: float

    @staticmethod
    def after(seconds: float) -> Deadline:
        return Deadline(time.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.at - time.monotonic())

    def at_most(self, seconds: float) -> Deadline:
        """The sooner of this and `seconds` from now."""
        return Deadline(min(self.at, time.monotonic() + seconds))

    @property
    def expired(self) -> bool:
        return self.remaining() == 0.0


class Component(Protocol):
    """A part of a process with something to end. `close` may come without `start`, when an earlier part failed."""

    def start(self) -> None:
        """Begins; returns once it is up."""

    def close(self) -> None:
        """Stops intake. Returns at once. What other components still drain through stays until `join`."""

    def join(self, timeout_s: float) -> bool | None:
        """After close: drains, commits, releases. False when not finished in time; call it again or abort."""

    def abort(self) -> None:
        """Drops work and releases."""


@runtime_checkable
class Fallible(Protocol):
    """A component with threads of its own, which can break by themselves."""

    def failure(self) -> BaseException | None:
        """What broke it; None while it works."""


def run_until_signal(
    components: Sequence[Component], drain_s: float, *, on_started: Callable[[], None] = lambda: None
) -> int:
    """Runs `components`, started in order, until SIGTERM, SIGINT or a failure. Returns the exit code.

    0: a signal came and all was drained in time. 1: a component failed, at start or later, or the drain was cut short.
    The last ABORT_SHARE of `drain_s` is for aborting; a process that still runs then is ended, with exit code 1, also
    when this function has returned. Call from the main thread: signal handlers live there.
    """
    with _signals() as stop:
        started: list[Component] = []
        failure = _start(components, started)
        if failure is None:
            on_started()
            failure = _wait(started, stop)
        if failure is not None:
            # An error of ours names thing, place and next step; only a traceback shows where a bug is.
            known = isinstance(failure, TsdbError) and failure.reason != TsdbError.default_reason
            log.error("stopping: a component failed", error=str(failure), exc_info=None if known else failure)
        abort_s = min(ABORT_S_MAX, drain_s * ABORT_SHARE)
        _LastResort(max(drain_s, ABORT_S_MAX)).start()
        drained = _end(started, Deadline.after(drain_s - abort_s), stop)
        if not drained:
            _LastResort(ABORT_S_MAX).start()
    return EXIT_OK if failure is None and drained else EXIT_FAILED


class _LastResort(threading.Thread):
    """Ends the process after some seconds, whatever still runs in it; a thread that ends with the process."""

    def __init__(self, after_s: float) -> None:
        super().__init__(name="last-resort", daemon=True)
        self._after_s = after_s

    def run(self) -> None:
        time.sleep(self._after_s)
        reporting = threading.Thread(target=self._report, daemon=True)
        reporting.start()
        reporting.join(LOG_S_MAX)
        os._exit(EXIT_FAILED)

    def _report(self) -> None:
        others = (threading.current_thread(), threading.main_thread(), self)
        names = sorted(thread.name for thread in threading.enumerate() if not thread.daemon and thread not in others)
        log.error("process ended at once: work outlived the drain", threads=names[:20], waited_s=self._after_s)


class _Stop:
    """Counts stop signals; waiting ends with the first."""

    def __init__(self) -> None:
        self.count = 0
        self._first = threading.Event()

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        # No logging here: a handler may interrupt the very code that holds the log's lock.
        self.count += 1
        self._first.set()

    def wait(self, timeout_s: float) -> bool:
        return self._first.wait(timeout_s)


@contextmanager
def _signals() -> Iterator[_Stop]:
    stop = _Stop()
    before = {number: signal.signal(number, stop.on_signal) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(components: Sequence[Component], started: list[Component]) -> BaseException | None:
    for component in components:
        # Before start: one that fails halfway has something to release too.
        started.append(component)
        try:
            component.start()
        except Exception as error:
            return error
    return None


def _wait(components: Sequence[Component], stop: _Stop) -> BaseException | None:
    while not stop.wait(POLL_S):
        for component in components:
            failure = component.failure() if isinstance(component, Fallible) else None
            if failure is not None:
                return failure
    log.info("stopping: a signal came")
    return None


def _end(started: Sequence[Component], deadline: Deadline, stop: _Stop) -> bool:
    """Closes and joins in reverse order of start; aborts what does not end in time. True when all drained."""
    signals_before = min(stop.count, 1)
    drained = True
    for component in reversed(started):
        drained &= _attempt(component.close, component, "close")
    for component in reversed(started):
        drained &= _attempt(partial(_join, component, deadline, stop, signals_before), component, "join")
    return drained


def _join(component: Component, deadline: Deadline, stop: _Stop, signals_before: int) -> bool:
    while True:
        if component.join(min(JOIN_SLICE_S, deadline.remaining())) is not False:
            return True
        if deadline.expired or stop.count > signals_before:
            log.warning("work dropped at the end", component=type(component).__name__, deadline=deadline.expired)
            component.abort()
            return False


def _attempt(action: Callable[[], bool | None], component: Component, verb: str) -> bool:
    # One that cannot end well must not keep the others from it.
    try:
        return action() is not False
    except Exception as error:
        log.error("component did not end well", component=type(component).__name__, verb=verb, exc_info=error)
        return False
