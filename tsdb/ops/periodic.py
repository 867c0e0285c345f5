"""Periodic: a component that calls a function at intervals, on its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tsdb.ops.threads import ThreadComponent


class Periodic(ThreadComponent):
    """Calls `look`, then again `every_s` seconds after each return or at once when woken, until `close`. A look that
    returns a number of seconds is followed by the next one after that time.

    at_once: whether the first call comes at the start; False for an owner that has just called `look` itself.
    """

    def __init__(self, name: str, every_s: float, look: Callable[[], float | None], *, at_once: bool = True) -> None:
        super().__init__(name)
        self._every_s = every_s
        self._at_once = at_once
        self._look_once = look
        self._woken = threading.Event()

    def close(self) -> None:
        """Stop after the current call of `look`."""
        super().close()
        self._woken.set()

    def wake(self) -> None:
        """Call `look` at once, or after the current call. Callable from any thread."""
        self._woken.set()

    def _run(self) -> None:
        if not self._at_once:
            self._woken.wait(self._every_s)
        while True:
            self._woken.clear()
            # After the clear, which may have taken the wake of `close`.
            if self._closing.is_set():
                return
            wait_s = self._look_once()
            self._woken.wait(self._every_s if wait_s is None else wait_s)
