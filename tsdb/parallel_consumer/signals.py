"""Signals: how a program waits for its end: to be asked for it, or for something that failed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

LOOK_EVERY_S = 0.2


def wait_for_the_end(failed: Callable[[], bool]) -> None:
    """Return at SIGTERM or SIGINT, or once it has failed. On the main thread; the handlers of before are put back."""
    asked = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not asked.wait(LOOK_EVERY_S) and not failed():
            pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
