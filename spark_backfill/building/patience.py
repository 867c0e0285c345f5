"""Patience: a task waits while the log does not answer. Spark counts failed attempts, not the time between them: the
few attempts of a task are over within seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.ops.logs import get_logger

AGAIN_AFTER_S = 1.0
Result = TypeVar("Result")

log = get_logger(__name__)


def patiently(run: Callable[[], Result], clock: Clock, patience_s: float) -> Result:
    """Run until there is a result. Raises Unavailable when the first failed try began patience_s ago."""
    failing_since: float | None = None
    while True:
        began = clock.monotonic()
        try:
            return run()
        except Unavailable as error:
            failing_since = began if failing_since is None else failing_since
            if clock.monotonic() - failing_since >= patience_s:
                raise
            log.warning("task repeated: the log does not answer", reason=error.reason, error=error.message)
        clock.sleep(AGAIN_AFTER_S)
