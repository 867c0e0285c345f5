"""Outage: lines in the log about one thing that goes and comes back, few however often it does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tsdb.ops.logs import get_logger

QUIET_S = 60.0  # Between two outages of one thing that are logged.

log = get_logger(__name__)


class Outage:
    """Logs when a thing goes (event `gone`) and when it is back (event `back`); thread-safe.

    An outage within QUIET_S of the last one that was logged is only counted.
    """

    def __init__(self, gone: str, back: str, clock: Callable[[], float] = time.monotonic, **fields: str) -> None:
        self._gone = gone
        self._back = back
        self._fields = fields
        self._clock = clock
        self._lock = threading.Lock()  # Guards what is below.
        self._down_since: float | None = None
        self._logged_at: float | None = None
        self._shown = False
        self._unshown = 0

    def saw(self, failure: str | None) -> None:
        """Its latest state: why it failed, None for a success."""
        with self._lock:
            if failure is not None and self._down_since is None:
                self._went(failure)
            elif failure is None and self._down_since is not None:
                self._came_back()

    def _went(self, failure: str) -> None:
        now = self._down_since = self._clock()
        self._shown = self._logged_at is None or now - self._logged_at >= QUIET_S
        if not self._shown:
            self._unshown += 1
            return
        self._logged_at = now
        log.warning(self._gone, error=failure, earlier_outages=self._unshown, **self._fields)
        self._unshown = 0

    def _came_back(self) -> None:
        assert self._down_since is not None
        down_s = self._clock() - self._down_since
        self._down_since = None
        if self._shown:
            # Information: the filter of repeated warnings must not keep it from the line that it answers.
            log.info(self._back, down_s=round(down_s, 1), **self._fields)
