"""Interpreter: what a process that replays and serves at once asks of Python and of malloc.

Replay frees tens of MiB at a time and malloc keeps them: a store of 100,000 series was 900 MiB where it needed 400
(bench/memory.py). And a reader waits for the GIL behind a busy worker for a switch interval, several times an answer.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import threading
from collections.abc import Callable

from tsdb.model.clock import Clock

SWITCH_INTERVAL_S = 0.0005  # Ten hand-overs beside a busy thread: 7 ms instead of 32 at Python's default.
GIVE_BACK_EVERY_S = 10.0


@functools.cache
def tune() -> None:
    """Once a process, after everything was imported and compiled: what is there now stays, so it need not be walked."""
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
    gc.collect()
    gc.freeze()


class GiveBack:
    """Gives freed memory back to the system, at most every GIVE_BACK_EVERY_S, whichever thread comes first."""

    def __init__(self, clock: Clock, trim: Callable[[int], object] | None = None) -> None:
        self._clock = clock
        self._trim = trim or _malloc_trim()
        self._lock = threading.Lock()  # Guards _next_at; a leaf.
        self._next_at = clock.monotonic() + GIVE_BACK_EVERY_S

    def offer(self) -> None:
        """Give back if it is time."""
        with self._lock:
            now = self._clock.monotonic()
            if now < self._next_at:
                return
            self._next_at = now + GIVE_BACK_EVERY_S
        self._trim(0)


def _malloc_trim() -> Callable[[int], object]:
    """glibc's; other allocators give back by themselves."""
    found: Callable[[int], object] = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)
    return found
