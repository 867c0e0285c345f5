"""Periodic: a component that calls a function at intervals, on its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tsdb.ops.logs import get_logger

log = get_logger(__name__)


class Periodic:
    """Calls `look`, then again `every_s` seconds after each return or at once when woken, until `close`.

    at_once: whether the first call comes at the start; False for an owner that has just called `look` itself. An
    exception from `look` is kept and ends the process (`failure`): otherwise readiness would go on showing an old
    state.
    """

    def __init__(self, name: str, every_s: float, look: Callable[[], None], *, at_once: bool = True) -> None:
        self._every_s = every_s
        self._at_once = at_once
        self._look_once = look
        self._closing, self._woken = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop after the current call of `look`."""
        self._closing.set()
        self._woken.set()

    def wake(self) -> None:
        """Call `look` at once, or after the current call. Callable from any thread."""
        self._woken.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; False when it still runs after the timeout."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def abort(self) -> None:
        """No effect: there is no work to drop."""

    def failure(self) -> BaseException | None:
        """The exception that ended the thread; None while it works."""
        return self._error

    def _run(self) -> None:
        try:
            if not self._at_once:
                self._woken.wait(self._every_s)
            while not self._closing.is_set():
                self._woken.clear()
                self._look_once()
                self._woken.wait(self._every_s)
        except BaseException as error:
            log.error("thread failed", thread=self._thread.name, error=str(error), exc_info=True)
            self._error = error
