"""Life of a process: start the components in order, wait for a signal or a failure, stop them in reverse order.

All steps of the shutdown share one deadline. The first SIGTERM or SIGINT drains; a second one, or the deadline, aborts.
Work that survives even the abort ends with the process; nothing accepted is lost, since it is in the log.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Protocol, runtime_checkable

from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import watched_threads

log = get_logger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1
POLL_S = 1.0  # Interval of the check for failed components. A failure of a thread is seen at once.
JOIN_SLICE_S = 0.2  # Interval of the check for a second signal during a drain.
ABORT_SHARE = 0.2  # Share of drain_s reserved for the steps after the drain: abort and interpreter shutdown.
ABORT_S_MAX = 2.0
LOG_S_MAX = 0.5  # Time for the last log line: a full pipe without a reader must not keep the process alive.
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time on the monotonic clock, passed down to every step that must finish by then."""

    at: float

    @staticmethod
    def after(seconds: float) -> Deadline:
        return Deadline(time.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.at - time.monotonic())

    def at_most(self, seconds: float) -> Deadline:
        """The earlier of this deadline and `seconds` from now."""
        return Deadline(min(self.at, time.monotonic() + seconds))

    @property
    def expired(self) -> bool:
        return self.remaining() == 0.0


class Component(Protocol):
    """A part of a process that has a shutdown. `close` may come without `start`, when an earlier component failed.

    A subclass inherits what it does not need: each method does nothing here.
    """

    def start(self) -> None:
        """Start; returns once the component is up."""
        return

    def close(self) -> None:
        """Stop intake and return at once. Resources that other components need for their drain stay until `join`."""
        return

    def join(self, timeout_s: float) -> bool | None:
        """Call it after close: it drains, commits and releases. False when that did not end in time; then call it
        again, or `abort`."""
        return None

    def abort(self) -> None:
        """Drop work and release resources."""
        return


@runtime_checkable
class Fallible(Protocol):
    """A component with its own threads, which can fail at any time."""

    def failure(self) -> BaseException | None:
        """The exception that stopped the component; None while it works."""


def fallible_of(components: Sequence[Component]) -> list[Fallible]:
    """The components that can fail. Keep the result, because the check of a protocol takes longer than `failure`
    itself."""
    return [component for component in components if isinstance(component, Fallible)]


def run_until_signal(
    components: Sequence[Component], drain_s: float, *, on_started: Callable[[], None] = lambda: None
) -> int:
    """Start `components` in order and run them until SIGTERM, SIGINT or a failure. Returns the exit code.

    0: a signal came and everything was drained in time. 1: a component or any thread failed, at start, later or during
    the drain, or the drain was cut short. The last ABORT_SHARE of `drain_s` is for aborting. A process that still runs
    after `drain_s` is ended with exit code 1, even when this function has returned. Call from the main thread, which
    Python requires for signal handlers.
    """
    with _signals() as stop, watched_threads() as threads:
        started: list[Component] = []
        failure = _start(components, started)
        if failure is None:
            on_started()
            threads.on_news = stop.look
            failure = _wait([*fallible_of(started), threads], stop)
        if failure is not None:
            # Our own errors name the problem, the object and the next step. Only a bug needs a traceback.
            known = isinstance(failure, TsdbError) and failure.reason != TsdbError.default_reason
            log.error("stopping: a component failed", error=str(failure), exc_info=None if known else failure)
        abort_s = min(ABORT_S_MAX, drain_s * ABORT_SHARE)
        _LastResort(max(drain_s, ABORT_S_MAX)).start()
        drained = _end(started, Deadline.after(drain_s - abort_s), stop)
        if not drained:
            _LastResort(ABORT_S_MAX).start()
        failed = failure is not None or threads.failure() is not None
    return EXIT_OK if drained and not failed else EXIT_FAILED


class _LastResort(threading.Thread):
    """Daemon thread that ends the process after `after_s` seconds, even while other threads still run."""

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
    """Counts stop signals. `wait` returns at the first, and after `look`. Signals and `wait` are of the main thread."""

    def __init__(self) -> None:
        self.count = 0
        # Taken until the first signal. An Event would suffice, but its `set` blocks for ever in a handler that
        # interrupts its `wait`. `SimpleQueue.get` waits for ever when its timeout passes before it begins to wait.
        self._none_yet = threading.Lock()
        self._none_yet.acquire()

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        # No logging here: the handler may interrupt code that holds the lock of the log.
        self.count += 1
        with suppress(RuntimeError):  # This is not the first signal.
            self._none_yet.release()

    def look(self) -> None:
        """End the wait without a signal. Any thread."""
        with suppress(RuntimeError):  # The wait has not begun since the last signal.
            self._none_yet.release()

    def wait(self, timeout_s: float) -> bool:
        if not self.count:
            self._none_yet.acquire(timeout=timeout_s)
        return self.count > 0


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
        # Appended before the start, because a component whose start fails halfway also has resources to release.
        started.append(component)
        try:
            component.start()
        except Exception as error:
            return error
    return None


def _wait(fallible: Sequence[Fallible], stop: _Stop) -> BaseException | None:
    while not stop.wait(POLL_S):
        for component in fallible:
            failure = component.failure()
            if failure is not None:
                return failure
    log.info("stopping: a signal came")
    return None


def _end(started: Sequence[Component], deadline: Deadline, stop: _Stop) -> bool:
    """Close and join in reverse order of start; abort components that miss the deadline. True when all drained."""
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
    # A component whose shutdown fails must not prevent the shutdown of the others.
    try:
        return action() is not False
    except Exception as error:
        log.error("component shutdown failed", component=type(component).__name__, verb=verb, exc_info=error)
        return False
