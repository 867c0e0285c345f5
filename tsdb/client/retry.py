"""Retries: decides which errors are retryable and how long to wait before the next attempt. The callers wait.

One `Attempts` covers one call of the user with all its wire calls, and never exceeds the timeout. A hint of the server
(RetryInfo) is the shortest wait; without one the wait doubles from 50 ms to 2 s. A random share is added to each wait,
so that clients that were refused together do not retry together.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tsdb.client.arguments import arguments_of
from tsdb.model.errors import InvalidRequest, TsdbError, worth_retrying

FIRST_DELAY_S = 0.05
DELAY_MAX_S = 2.0
SPREAD = 0.25  # The largest share added to a wait.
SHORT_ATTEMPT_S = 0.5  # An attempt with less time may end before a busy machine has connected.


class Attempts:
    """Controls the attempts of one call, within `timeout_s` from construction. Not thread-safe.

    `monotonic` returns seconds; `spread` returns a random number in [0, 1).

    """

    def __init__(
        self,
        timeout_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        spread: Callable[[], float] = random.random,
    ) -> None:
        with arguments_of("timeout"):
            bounded = 0 < timeout_s < float("inf")
        if not bounded:
            raise InvalidRequest(f"timeout of {timeout_s} s; it must be finite and above 0", reason="bad_timeout")
        self._monotonic = monotonic
        self._spread = spread
        self._timeout_s = timeout_s
        self._give_up_at = monotonic() + timeout_s
        self._delay_s = FIRST_DELAY_S
        self._retried: TsdbError | None = None
        self._last_given_s = timeout_s
        self.failures = 0

    def remaining_s(self) -> float:
        """Time left for the next attempt, never below a millisecond: gRPC refuses a timeout of 0."""
        self._last_given_s = max(self._give_up_at - self._monotonic(), 0.001)
        return self._last_given_s

    def delay_after(self, error: TsdbError) -> float | None:
        """Seconds to wait before the next attempt; None when `error` is final or the wait would exceed the timeout."""
        self.failures += 1
        if not worth_retrying(error):
            return None
        hint_s = getattr(error, "retry_after_s", None) or 0.0
        delay_s = max(hint_s, self._delay_s) * (1 + SPREAD * self._spread())
        self._delay_s = min(self._delay_s * 2, DELAY_MAX_S)
        if self._monotonic() + delay_s >= self._give_up_at:
            return None
        self._retried = error
        return delay_s

    def cause(self, error: TsdbError) -> TsdbError:
        """The error for the caller: that of an earlier attempt, if the last one only had too little time left."""
        cut_short = error.reason == "deadline" and self._last_given_s < SHORT_ATTEMPT_S
        return self._retried if cut_short and self._retried is not None else error

    def progressed(self) -> None:
        """Restart the timeout and the waits after an answer. For endless streams."""
        self._give_up_at = self._monotonic() + self._timeout_s
        self._delay_s = FIRST_DELAY_S
