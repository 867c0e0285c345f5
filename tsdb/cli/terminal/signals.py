"""Takes SIGTERM and SIGINT as a request to stop, for commands that end by themselves in good order."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set. It is installed before the work starts, so that an early signal counts."""
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        # Set on another thread, because an event's `set` blocks for ever in a handler that interrupts its `wait`.
        _thread.start_new_thread(stopping.set, ())

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
