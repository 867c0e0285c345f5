"""LogValue: a value of the log that reads need, which a log that does not answer never holds up.

The value is read on its own thread when a read needs it and it is old. Reads wait for that together, for a second at
most. While the log does not answer, one read in `again_s` waits that second, and the others go on at once, with the
last value or without one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread, waiting_for_others

WAIT_S = 1.0

log = get_logger(__name__)

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Known(Generic[Value]):
    """A value of the log. at: monotonic time of its read. is_fresh: whether it is at most `every_s` old."""

    value: Value
    at: float
    is_fresh: bool


class LogValue(Generic[Value]):
    """read: reads the value; one thread at a time calls it, and it may raise TsdbError. every_s: how old the value may
    get. again_s: pause after a read that failed or took over WAIT_S. failed: counts such reads. Thread-safe."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Value],
        clock: Clock,
        *,
        every_s: float,
        again_s: float,
        failed: Callable[[], None] = lambda: None,
        wait_s: float = WAIT_S,
    ) -> None:
        self._name = name
        self._read = read
        self._clock = clock
        self._every_s = every_s
        self._again_s = again_s
        self._count_failure = failed
        self._wait_s = wait_s
        self._changed = threading.Condition()  # Guards all below.
        self._value: Value | None = None
        self._value_at: float | None = None
        self._reading = False
        self._failed_at: float | None = None
        self._error: TsdbError | None = None

    def get(self) -> Known[Value]:
        """The value. While the log does not answer, it is the last value, not fresh. Without a last value, raises the
        error of the log, or Unavailable (log_slow)."""
        with self._changed:
            if self._is_fresh_locked(self._clock.monotonic()):
                return self._known_locked()
        with waiting_for_others(), self._changed:
            begins = self._is_due_locked()
            if begins:
                self._reading = True
                new_thread(self._refresh, self._name).start()
                if not self._changed.wait_for(lambda: not self._reading, self._wait_s):
                    self._failed_locked(self._slow())
                    self._changed.notify_all()
            elif self._reading and self._failed_at is None:
                self._changed.wait_for(lambda: not self._reading or self._failed_at is not None, self._wait_s)
            return self._known_locked()

    def _is_due_locked(self) -> bool:
        now = self._clock.monotonic()
        if self._reading or self._is_fresh_locked(now):
            return False
        return self._failed_at is None or now - self._failed_at >= self._again_s

    def _is_fresh_locked(self, now: float) -> bool:
        return self._value_at is not None and now - self._value_at < self._every_s

    def _known_locked(self) -> Known[Value]:
        if self._value_at is None:
            assert self._error is not None or self._reading, "a value that is not known is being read, or has failed"
            raise self._error or self._slow()
        is_fresh = self._is_fresh_locked(self._clock.monotonic()) or (self._failed_at is None and not self._reading)
        return Known(self._value, self._value_at, is_fresh)  # type: ignore[arg-type]  # set together with its time

    def _failed_locked(self, error: TsdbError) -> None:
        self._failed_at, self._error = self._clock.monotonic(), error
        self._count_failure()
        log.warning("value of the log not known", value=self._name, reason=error.reason, error=error.message)

    def _slow(self) -> Unavailable:
        return Unavailable(
            f"the log has not answered for {self._name} within {self._wait_s:g} s", reason="log_slow", retry_after_s=1.0
        )

    def _refresh(self) -> None:
        at = self._clock.monotonic()
        value: Value | None = None
        error: TsdbError | None = None
        try:
            value = self._read()
        except TsdbError as failure:
            error = failure
        except BaseException as failure:
            error = TsdbError(f"reading {self._name} failed: {failure!r}")
            raise
        finally:
            with self._changed:
                self._reading = False
                if error is None:
                    self._value, self._value_at, self._failed_at, self._error = value, at, None, None
                else:
                    self._failed_locked(error)
                self._changed.notify_all()
