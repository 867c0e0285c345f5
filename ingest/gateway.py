"""Gateway: the write path as a component of a process. It runs on the threads of the server and of the log.

Stop order: the server stops accepting calls, `close()` refuses requests that its threads still begin, `join()` waits
until the log has answered every append. The log is closed after that.
"""

from __future__ import annotations

from ingest.announced_boundaries import SeriesBoundaries
from ingest.bucket_memory import BucketMemory
from ingest.limits import IngestLimits
from ingest.pipeline import WritePipeline
from ingest.quota.token_quota import TokenQuota
from tsdb.log.interface import METADATA, SERIES, Log
from tsdb.model.clock import Clock
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import TimeSet
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger

logger = get_logger(__name__)


class Gateway:
    """A Component and Fallible (tsdb.ops.lifecycle) around one pipeline. The caller owns the log and closes it later.

    buckets: the buckets of the histograms that protocols convert. tokens: the servers check a caller's token and rate
    with it before they read a request.
    """

    def __init__(
        self,
        log: Log,
        rule: PlacementRule,
        partitions: int,
        time_set: TimeSet,
        limits: IngestLimits,
        clock: Clock,
    ) -> None:
        for topic in (SERIES, METADATA):
            log.topic_id(topic)  # The first look asks the broker, and an append on the event loop must not wait for it.
        self.pipeline = WritePipeline(log, rule, partitions, time_set, limits, clock)
        self.boundaries = SeriesBoundaries(log, partitions, time_set.window_ms, clock)
        self.buckets = BucketMemory(self.boundaries)
        self.tokens = TokenQuota(self.pipeline.limits_now.token_rates, clock)

    def start(self) -> None:
        self.pipeline.watch_clock()

    def failure(self) -> BaseException | None:
        """The exception that ended a thread of the write path; the process ends with it."""
        return self.pipeline.failure()

    def problem(self) -> tuple[str, str]:
        """Reason and message why this gateway is not ready; empty while it is."""
        return self.pipeline.problem()

    def close(self) -> None:
        """Refuse further requests; returns at once."""
        self.boundaries.close()
        self.pipeline.close()

    def join(self, timeout_s: float) -> bool:
        """Wait until the log has answered every append; False after the timeout."""
        deadline = Deadline.after(timeout_s)
        return self.pipeline.wait_idle(timeout_s) and self.boundaries.join(deadline.remaining())

    def abort(self) -> None:
        """Stop waiting. Unanswered appends were never acknowledged to their senders, so senders send them again."""
        logger.warning("gateway stops with unanswered appends", inflight_bytes=self.pipeline.inflight_bytes)
