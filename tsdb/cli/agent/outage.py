"""Outage: logs the failure and the recovery of one target, with few lines even for frequent outages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tsdb.ops.logs import get_logger

QUIET_S = 60.0  # Shortest time between two logged outages of one target.

log = get_logger(__name__)


class Outage:
    """Logs the start of an outage (event `gone`) and its end (event `back`). Thread-safe.

    An outage within QUIET_S of the last logged one is only counted.
    """

    def __init__(self, gone: str, back: str, clock: Callable[[], float] = time.monotonic, **fields: str) -> None:
        self._gone = gone
        self._back = back
        self._fields = fields
        self._clock = clock
        self._lock = threading.Lock()  # Guards all below.
        self._down_since: float | None = None
        self._logged_at: float | None = None
        self._shown = False
        self._unshown = 0

    def saw(self, failure: str | None) -> None:
        """Report the latest state: the cause of a failure, or None for a success."""
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
            # Level info: the filter of repeated warnings must not drop the end of a logged outage.
            log.info(self._back, down_s=round(down_s, 1), **self._fields)
