"""Silence: a cluster that answers nothing at all, as when its nodes hang. Reads are then refused at once.

A hanging node keeps its connections, so each read of it would wait for its whole time limit. One slow read is no
silence: another answer within the same time shows that the cluster works.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tsdb.model.errors import Unavailable

PROBE_EVERY_S = 0.5
PROBE_WAIT_S = 0.2


class Silence:
    """Thread-safe. after_s: reads wait this long without any answer of the cluster before they are refused."""

    def __init__(self, after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._after_s = after_s
        self._clock = clock
        self._lock = threading.Lock()  # Guards all below.
        self._answer_at = clock()
        self._silent = False
        self._probe_at = 0.0

    def answered(self) -> None:
        """The cluster has answered a request, with rows or with an error."""
        with self._lock:
            self._answer_at = self._clock()
            self._silent = False

    def admit(self) -> None:
        """Before a request. During a silence one request in PROBE_EVERY_S goes out, whose answer ends it.

        Raises Unavailable (history_silent) for the others.
        """
        with self._lock:
            now = self._clock()
            if self._silent and now < self._probe_at:
                raise self._refusal()
            self._probe_at = now + PROBE_EVERY_S

    def wait(self, done: threading.Event) -> None:
        """Wait until the request is done. Raises Unavailable (history_silent)."""
        began = self._clock()
        while True:
            with self._lock:
                limit_s = PROBE_WAIT_S if self._silent else self._after_s
                left_s = max(began, self._answer_at) + limit_s - self._clock()
                if left_s <= 0 and not done.is_set():
                    self._silent = True
                    raise self._refusal()
            if done.wait(max(left_s, 0.0)):
                return

    def _refusal(self) -> Unavailable:
        return Unavailable(
            f"history answers nothing, for over {self._after_s:g} s; the read is refused, send it again",
            reason="history_silent",
            retry_after_s=1.0,
        )
