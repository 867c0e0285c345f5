"""Kernels at the start of a role: the warm-ups run before its components, and each reader of progress sees one text.

Readers are the log or the terminal, `/-/ready`, and callers, which the gRPC server refuses in the meantime.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tsdb.codec.jit import Compiling, kernel_counts
from tsdb.codec.kernel_folders import cache_root
from tsdb.ops.logs import get_logger

LOG_EVERY_S = 5.0

WarmUps = Sequence[Callable[[], object]]

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KernelProgress:
    """done: kernels that are compiled or loaded. total: all kernels of the imported modules. seconds_left: an estimate;
    None before the first kernel is compiled."""

    done: int
    total: int
    seconds_left: int | None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", {self.seconds_left} s left"
        return f"compiling kernels, {self.done} of {self.total}{left}"


class Show(Protocol):
    """A display of progress. One thread."""

    def show(self, progress: KernelProgress) -> None:
        """Called as each kernel begins to compile."""

    def end(self) -> None:
        """Called after the warm-ups, also when none compiled."""


class KernelLog:
    """Logs progress: the first at once, the next at most every `every_s`."""

    def __init__(self, every_s: float = LOG_EVERY_S, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._monotonic = monotonic
        self._due = 0.0

    def show(self, progress: KernelProgress) -> None:
        now = self._monotonic()
        if now < self._due:
            return
        self._due = now + self._every_s
        seconds = {} if progress.seconds_left is None else {"seconds_left": progress.seconds_left}
        log.info("compiling kernels", done=progress.done, of=progress.total, **seconds, cache=str(cache_root()))

    def end(self) -> None:
        """No effect: a log has nothing to remove."""


class _Stopped(Exception):
    """Ends a warm-up before its next kernel compiles."""


class KernelStart:
    """Runs the warm-ups of a role."""

    def __init__(
        self,
        show: Show | None = None,
        *,
        counts: Callable[[], tuple[int, int]] = kernel_counts,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show: Show = show or KernelLog()
        self._counts = counts
        self._monotonic = monotonic
        # Time of the first compilation, and the number of ready kernels then.
        self._began: tuple[float, int] | None = None
        self._running = False
        self._stopping: Callable[[], bool] = lambda: False

    def run(self, warm_ups: WarmUps, stopping: Callable[[], bool]) -> None:
        """Run the warm-ups in order, on the caller's thread. Progress is reported from the first compilation on.

        stopping: returns whether to end before the next kernel.

        """
        self._running = True
        self._stopping = stopping
        try:
            with Compiling(self._on_compile):
                for warm_up in warm_ups:
                    if not stopping():
                        warm_up()
        except Exception:
            # numba may wrap _Stopped in one of its errors.
            if not stopping():
                raise
        finally:
            self._running = False
            self._show.end()

    def progress(self) -> KernelProgress | None:
        """The progress of a running warm-up, from its first compilation on; otherwise None. Any thread may call it."""
        began = self._began
        if began is None or not self._running:
            return None
        began_at, before = began
        done, total = self._counts()
        seconds = (self._monotonic() - began_at) / (done - before) * (total - done) if done > before else None
        return KernelProgress(done, total, None if seconds is None else round(seconds))

    def _on_compile(self, _kernel: str) -> None:
        if self._stopping():
            raise _Stopped
        if self._began is None:
            self._began = self._monotonic(), self._counts()[0]
        progress = self.progress()
        if progress is not None:
            self._show.show(progress)
