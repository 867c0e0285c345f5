"""Waits of a thread for other processes: while it waits, its share of the cores may serve other work.

A pool binds an object to each of its threads; code that waits for a store, for history or for the log says so with
`waiting_for_others`. No effect on other threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Waits(Protocol):
    """The view of a pool on one of its threads. Called on that thread."""

    def begin(self) -> None:
        """The thread begins to wait."""

    def end(self) -> None:
        """The wait is over. May wait for room to go on."""


_of_thread = threading.local()


def bind(waits: Waits | None) -> None:
    """Set the object of this thread."""
    _of_thread.waits = waits


@contextmanager
def waiting_for_others() -> Iterator[None]:
    """The thread waits for another process inside the block. Waits inside a wait count once."""
    waits: Waits | None = getattr(_of_thread, "waits", None)
    if waits is None:
        yield
        return
    _of_thread.waits = None
    waits.begin()
    try:
        yield
    finally:
        _of_thread.waits = waits
        waits.end()
