"""Commits: when positions are committed to the source, and how failed commits are repeated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.errors import CommitFailed, ConsumerError
from tsdb.parallel_consumer.limited_log import LimitedLog
from tsdb.parallel_consumer.metrics import COMMIT_FAILURES, ConsumerMetrics
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.record import Partition, Position
from tsdb.parallel_consumer.source import Source

OnCommitted = Callable[[Mapping[Partition, Position]], None]


class Commits:
    """`error`: why the last commit failed; empty after a success. on_committed: called with acknowledged positions.

    `failure`: the error that ended all committing; None before.
    """

    def __init__(
        self,
        source: Source,
        options: Options,
        metrics: ConsumerMetrics,
        log: LimitedLog,
        clock: Clock,
        on_committed: OnCommitted,
    ) -> None:
        self._source = source
        self._options = options
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._on_committed = on_committed
        self._next_at = clock.monotonic() + options.commit_interval_s
        self._finished = 0
        self.error = ""
        self.error_reason = ""
        self.failure: ConsumerError | None = None

    def count_finished(self, count: int) -> None:
        """Count finished records towards commit_records."""
        self._finished += count

    def due_in_s(self) -> float:
        """Seconds until the next commit."""
        return max(0.0, self._next_at - self._clock.monotonic())

    def if_due(self, partitions: Iterable[PartitionWork]) -> None:
        """Commit when the interval is over or enough records are finished."""
        limit = self._options.commit_records
        enough = limit is not None and self._finished >= limit and not self.error
        if enough or self.due_in_s() == 0.0:
            self.now(partitions)

    def soon(self, partitions: Iterable[PartitionWork]) -> bool:
        """Commit now; after a failed commit wait for the next interval. Returns whether it is acknowledged."""
        if self.error and self.due_in_s() > 0:
            return False
        return self.now(partitions)

    def now(self, partitions: Iterable[PartitionWork]) -> bool:
        """Commit all dirty partitions; whether that is acknowledged."""
        self._next_at = self._clock.monotonic() + self._options.commit_interval_s
        self._finished = 0
        changed = {part.place: part for part in partitions if part.dirty and not part.closed}
        if not changed:
            return True
        if self.failure is not None:
            return False
        positions = {place: part.to_commit(self._options.metadata_units_max) for place, part in changed.items()}
        try:
            self._source.commit(positions)
        except ConsumerError as error:
            self._note(error)
            if not isinstance(error, CommitFailed):
                self.failure = error
            return False
        self._metrics.commits.labels("ok").inc()
        self._metrics.metadata_units.set(max(len(position.metadata) for position in positions.values()))
        if self.error:
            self._log.say(logging.INFO, "commit_again", None, "commits are acknowledged again")
        self.error = self.error_reason = ""
        for place, position in positions.items():
            changed[place].committed = position
            changed[place].dirty = False
        self._on_committed(positions)
        return True

    def _note(self, error: ConsumerError) -> None:
        reason = error.reason if error.reason in COMMIT_FAILURES else "other"
        self._metrics.commits.labels("failed").inc()
        self._metrics.commit_failures.labels(reason).inc()
        self.error, self.error_reason = error.message, error.reason
        self._log.say(logging.WARNING, f"commit_{reason}", None, "commit failed (%s): %s", error.reason, error.message)
