"""Periodic: a thread that looks at something every so often, as a component of a process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tsdb.ops.logs import get_logger

log = get_logger(__name__)


class Periodic:
    """Calls `look` at once, or, for who has looked before it starts, not before every_s, and then every_s seconds after
    it returned, or when woken, until it is closed.

    What `look` raises is kept and ends the process (`failure`): readiness that nobody looks after any more would go on
    to tell what was true once.
    """

    def __init__(self, name: str, every_s: float, look: Callable[[], None], *, at_once: bool = True) -> None:
        self._every_s = every_s
        self._at_once = at_once
        self._look_once = look
        self._closing, self._woken = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the look under way."""
        self._closing.set()
        self._woken.set()

    def wake(self) -> None:
        """Look at once, after the look under way; from any thread."""
        self._woken.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; False when it still runs."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def abort(self) -> None:
        """Nothing to drop."""

    def failure(self) -> BaseException | None:
        """What ended the thread; None while it works."""
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
