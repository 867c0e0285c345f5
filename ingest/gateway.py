"""Gateway: the write side as a part of a process. Its threads are the server's and the log's; it owns none.

Stop order: the server stops taking calls, `close()` refuses what its threads still begin, `join()` waits until the log
has answered every append, and only then is the log closed.
"""

from __future__ import annotations

import structlog

from ingest.limits import IngestLimits
from ingest.pipeline import Pipeline
from ingest.warm_up import warm_up
from tsdb.log.interface import Log
from tsdb.model.clock import Clock
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import TimeSet

logger = structlog.get_logger(__name__)


class Gateway:
    """A component (tsdb.ops.lifecycle) around one pipeline. The log belongs to the caller, who closes it later."""

    def __init__(
        self,
        log: Log,
        rule: PlacementRule,
        partitions: int,
        time_set: TimeSet,
        limits: IngestLimits,
        clock: Clock,
    ) -> None:
        self.pipeline = Pipeline(log, rule, partitions, time_set, limits, clock)

    def start(self) -> None:
        """Compile or load the kernels, so that the first request does not wait for that."""
        warm_up()

    def close(self) -> None:
        """Refuse further requests; returns at once."""
        self.pipeline.close()

    def join(self, timeout_s: float) -> bool:
        """Wait until the log has answered everything; False when it has not in time."""
        return self.pipeline.wait_idle(timeout_s)

    def abort(self) -> None:
        """Stop waiting. What the log has not answered was never acknowledged: senders send it again."""
        logger.warning("gateway stops with unanswered appends", inflight_bytes=self.pipeline.inflight_bytes)
