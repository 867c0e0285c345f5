"""Checker: the thread that checks all paths at an interval, counts what it finds and logs what changes."""

from __future__ import annotations

from collections.abc import Callable

from tsdb.canary.canary_metrics import (
    READ_PATHS,
    RESULTS,
    checks_total,
    failures_total,
    last_success,
    oldest_checked,
    path_checked,
    samples_total,
)
from tsdb.canary.comparison import Findings
from tsdb.canary.ledger import Ledger, Newest
from tsdb.canary.paths import Outcome, Paths
from tsdb.canary.ranges import NotYet
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.periodic import Periodic

log = get_logger(__name__)


class Checker(Periodic):
    """Runs a round of checks every `every_s` seconds. An error in one path does not stop the checks of the others."""

    def __init__(self, paths: Paths, ledger: Ledger, clock: Clock, every_s: float) -> None:
        super().__init__("canary-checker", every_s, self.check)
        self._paths = paths
        self._ledger = ledger
        self._clock = clock
        self._states: dict[str, str] = {}
        self.turn_at = clock.monotonic()  # Start of the last check, for liveness.

    def check(self) -> None:
        """Check each path once. Without an acknowledged write there is nothing to check."""
        for path in READ_PATHS:
            self.turn_at = self._clock.monotonic()
            newest = self._ledger.newest
            if newest is not None and not self._closing.is_set():
                check: Callable[[Newest], Outcome] = getattr(self._paths, path)
                self._check(path, check, newest)

    def _check(self, path: str, check: Callable[[Newest], Outcome], newest: Newest) -> None:
        checks_total.labels(path).inc()
        try:
            outcome = check(newest)
        except TsdbError as error:
            self._failed(path, error.reason, error=error.message)
            return
        path_checked.labels(path).set(not isinstance(outcome, NotYet))
        if isinstance(outcome, NotYet):
            self._changed(path, outcome.reason, "path not checked yet")
            return
        for result in RESULTS:
            samples_total.labels(path, result).inc(getattr(outcome, result))
        if not outcome.clean:
            counts = {result: getattr(outcome, result) for result in RESULTS}
            self._failed(path, "differs", **counts)
            return
        self._succeeded(path, outcome)

    def _succeeded(self, path: str, findings: Findings) -> None:
        last_success.labels(path).set(self._clock.now_ms() / 1000)
        assert findings.oldest_ms is not None
        oldest_checked.labels(path).set(findings.oldest_ms / 1000)
        self._changed(path, "", "path checked")

    def _failed(self, path: str, reason: str, **fields: object) -> None:
        failures_total.labels(path, reason).inc()
        self._states[path] = reason
        log.warning("check failed", path=path, reason=reason, **fields)

    def _changed(self, path: str, state: str, event: str) -> None:
        if self._states.get(path) != state:
            self._states[path] = state
            log.info(event, path=path, **({"reason": state} if state else {}))
