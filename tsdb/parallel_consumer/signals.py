"""Signals: waits for SIGTERM, SIGINT or a failure."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

LOOK_EVERY_S = 0.2


def wait_for_the_end(failed: Callable[[], bool]) -> None:
    """Return at SIGTERM or SIGINT, or once failed() holds. Main thread only; restores the previous signal handlers."""
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
