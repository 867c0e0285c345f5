"""Drain: reads that wait for records which other processes have, and their end when this process ends.

A shutdown finishes the answers under way. A read that waits for a record, or for the next sample of a Watch, may wait
as long as its caller does, so the shutdown refuses it instead. The caller asks another replica.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tsdb.model.errors import Unavailable
from tsdb.ops.lifecycle import Component


class Drain(Component):
    """Ends the waiting reads of one process. A component; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards both below; an innermost lock.
        self._ends: dict[object, Callable[[], None]] = {}
        self._closed = False

    @contextmanager
    def wait(self, end: Callable[[], None]) -> Iterator[None]:
        """A read waits inside the block. end: ends the wait; `close` calls it on the thread that closes.

        Raises Unavailable (draining) when `close` came before the end of the block, in place of an error of the block.

        """
        key = object()
        with self._lock:
            if self._closed:
                raise draining()
            self._ends[key] = end
        try:
            yield
        except Unavailable as error:
            if self._closed:
                raise draining() from error
            raise
        finally:
            with self._lock:
                self._ends.pop(key, None)
        if self._closed:
            raise draining()

    def close(self) -> None:
        """End all waits, and refuse new ones."""
        with self._lock:
            self._closed = True
            ends = list(self._ends.values())
        for end in ends:
            end()

    def join(self, timeout_s: float) -> bool:
        return True


def draining() -> Unavailable:
    """The refusal of a read by a process that is ending."""
    return Unavailable("the process is ending; ask another replica", reason="draining", retry_after_s=0.5)
