"""Threads: how they start, and what their failure does. A thread that dies ends its process, always.

Otherwise readiness would show an old state, and callers would wait for answers that nobody gives. Every thread is made
by `new_thread` or is a ThreadComponent. `watched_threads` receives the failures; the process waits in it. A callback
without a caller, of a library or a timer, is a thread's work too: `unattended` wraps it.

A thread that waits for a store, for history or for the log says so with `waiting_for_others`: its pool may then use its
share of the cores for other work.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, Protocol

from tsdb.ops.logs import get_logger

log = get_logger(__name__)

_P = ParamSpec("_P")


class ThreadFailures:
    """Failures of all threads since it was made. Thread-safe. on_news: called, on any thread, after a failure."""

    def __init__(self) -> None:
        self._first: BaseException | None = None
        self.on_news: Callable[[], None] = lambda: None

    def add(self, error: BaseException) -> None:
        """Record a failure. Only the first one is kept, because later ones are mostly its consequences."""
        self._first = self._first or error
        self.on_news()

    def failure(self) -> BaseException | None:
        """The first exception that ended a thread; None while all work."""
        return self._first


# Failures of the `watched_threads`. A list changes in one step of the interpreter.
_watchers: list[ThreadFailures] = []


@contextmanager
def watched_threads() -> Iterator[ThreadFailures]:
    """Receives every failure of a thread during the block, of threads that libraries started too."""
    failures = ThreadFailures()
    hook_before = threading.excepthook

    def on_exception(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else "unknown"
        if args.exc_value is not None:
            report_failure(args.exc_value, name)

    _watchers.append(failures)
    threading.excepthook = on_exception
    try:
        yield failures
    finally:
        threading.excepthook = hook_before
        _watchers.remove(failures)


def report_failure(error: BaseException, thread: str) -> bool:
    """Log an exception that ended the work of a thread, and end the process with it. False when nothing watches: in a
    program that only imports us."""
    log.error("thread failed", thread=thread, error=str(error), exc_info=error)
    watchers = list(_watchers)
    for failures in watchers:
        failures.add(error)
    return bool(watchers)


def tell_failure() -> None:
    """A component keeps an exception in its `failure`: let the process look for it now."""
    for failures in list(_watchers):
        failures.on_news()


def new_thread(target: Callable[_P, object], name: str, *args: _P.args, **kwargs: _P.kwargs) -> threading.Thread:
    """A daemon thread, not yet started. An exception that leaves `target` is reported."""

    def run() -> None:
        try:
            target(*args, **kwargs)
        except BaseException as error:
            if not report_failure(error, name):
                raise  # The interpreter prints the exception.

    return threading.Thread(target=run, name=name, daemon=True)


def unattended(callback: Callable[_P, object], name: str) -> Callable[_P, None]:
    """The callback, for a library or a loop that would only log its exception or drop it. It raises nothing."""

    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            callback(*args, **kwargs)
        except BaseException as error:
            report_failure(error, name)

    return call


class ThreadComponent(ABC):
    """A component with one daemon thread. Implements Component and Fallible.

    A subclass implements `_run`, which works until `_closing` is set. An exception from `_run` ends the thread; it is
    stored and reported, and the process ends with it.
    """

    def __init__(self, name: str) -> None:
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_guarded, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. A component starts at most once."""
        self._thread.start()

    def close(self) -> None:
        """Let the thread end after its current step. Returns at once; callable before `start` and more than once."""
        self._closing.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread. False when it still runs after the timeout; True when it never started."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def abort(self) -> None:  # noqa: B027  An override is optional.
        """Drop work. Without an override it has no effect: most components have no work to drop."""

    def failure(self) -> BaseException | None:
        """The exception that ended the thread; None while it works, and after `close`."""
        return self._error

    @abstractmethod
    def _run(self) -> None:
        """Work on the thread until `_closing` is set."""

    def _run_guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._error = error
            report_failure(error, self._thread.name)


class ThreadWaits(Protocol):
    """The view of a pool on one of its threads. Called on that thread."""

    def begin(self) -> None:
        """The thread begins to wait."""

    def end(self) -> None:
        """The wait is over. This call may itself wait until the thread can go on."""


_waits_of_thread = threading.local()


def bind_waits(waits: ThreadWaits | None) -> None:
    """Set the object of this thread."""
    _waits_of_thread.waits = waits


@contextmanager
def waiting_for_others() -> Iterator[None]:
    """The thread waits for another process inside the block. Waits inside a wait count once."""
    waits: ThreadWaits | None = getattr(_waits_of_thread, "waits", None)
    if waits is None:
        yield
        return
    _waits_of_thread.waits = None
    waits.begin()
    try:
        yield
    finally:
        _waits_of_thread.waits = waits
        waits.end()
