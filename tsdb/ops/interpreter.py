"""Interpreter: sets up Python and malloc for processes with many threads.

Replay frees tens of MiB at a time and malloc keeps them: a store of 100,000 series used 900 MiB where it needed 400
(bench/store/memory.py). A reader also waits for the GIL behind a busy worker, one switch interval each time, several
times per answer.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import threading
from collections.abc import Callable

from tsdb.model.clock import Clock

# A write hands over about six times: beside queries that compute all the time its p99 is 17 ms, with 0.5 ms 22 ms
# (tests/soak/test_promql_soak.py). Ten hand-overs beside a busy thread took 32 ms with Python's default of 5 ms.
SWITCH_INTERVAL_S = 0.0001
GC_THRESHOLDS = gc.get_threshold()
TRIM_EVERY_S = 10.0
M_ARENA_MAX = -8  # A constant of glibc's malloc.h.


def import_without_collections() -> None:
    """Raise the threshold of the garbage collector until `freeze_started`, for imports make a million objects that
    stay: walking them again and again takes a tenth of a start's CPU."""
    gc.set_threshold(100_000)


@functools.cache
def freeze_started() -> None:
    """Set Python's own thresholds again, after all modules are imported and all kernels are loaded. The objects that
    exist now live as long as the process, so the garbage collector need not walk them. 10 MiB that imports and loads
    have freed go back to the system. Acts once per process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    _malloc_trim()(0)


def share_malloc_arena() -> None:
    """Make threads that start later allocate from the arenas that exist. Has no effect unless malloc is glibc's.

    By default glibc makes up to 8 arenas for each core, and memory that was freed in one is useless to the others: a
    gateway with 2 million series needed 50 MiB more. Python's threads hardly ever allocate at the same time.

    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


class MallocTrimmer:
    """Returns freed memory to the system, at most every TRIM_EVERY_S for all threads together. Thread-safe."""

    def __init__(self, clock: Clock, trim: Callable[[int], object] | None = None) -> None:
        self._clock = clock
        self._trim = trim or _malloc_trim()
        self._lock = threading.Lock()  # Guards _next_at; an innermost lock.
        self._next_at = clock.monotonic() + TRIM_EVERY_S

    def trim_if_due(self) -> None:
        """Return freed memory if the interval has passed."""
        with self._lock:
            now = self._clock.monotonic()
            if now < self._next_at:
                return
            self._next_at = now + TRIM_EVERY_S
        self._trim(0)


def _malloc_trim() -> Callable[[int], object]:
    """malloc_trim of glibc. Other allocators return memory by themselves."""
    found: Callable[[int], object] = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)
    return found
