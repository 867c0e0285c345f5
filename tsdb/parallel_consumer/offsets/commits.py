"""Commits: when positions are committed to the source, and how failed commits are repeated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from tsdb.parallel_consumer.errors import CommitFailed, ConsumerError
from tsdb.parallel_consumer.metrics import COMMIT_FAILURES
from tsdb.parallel_consumer.offsets.partition import PartitionState
from tsdb.parallel_consumer.record import Position, TopicPartition
from tsdb.parallel_consumer.scheduling.environment import Environment
from tsdb.parallel_consumer.source import Source

OnCommitted = Callable[[Mapping[TopicPartition, Position]], None]


class Commits:
    """`error`: cause of the last failed commit; empty after a success. on_committed: called with acknowledged
    positions.

    `failure`: the error that ended all commits; None before.

    """

    def __init__(self, env: Environment, source: Source, on_committed: OnCommitted) -> None:
        self._source = source
        self._options = env.options
        self._metrics = env.metrics
        self._log = env.log
        self._clock = env.clock
        self._on_committed = on_committed
        self._next_at = env.clock.monotonic() + env.options.commit_interval_s
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

    def if_due(self, partitions: Iterable[PartitionState]) -> None:
        """Commit when the interval is over or enough records are finished."""
        limit = self._options.commit_records
        enough = limit is not None and self._finished >= limit and not self.error
        if enough or self.due_in_s() == 0.0:
            self.now(partitions)

    def soon(self, partitions: Iterable[PartitionState]) -> bool:
        """Commit now; after a failed commit wait for the next interval. Returns whether it is acknowledged."""
        if self.error and self.due_in_s() > 0:
            return False
        return self.now(partitions)

    def now(self, partitions: Iterable[PartitionState]) -> bool:
        """Commit all dirty partitions; whether that is acknowledged."""
        self._next_at = self._clock.monotonic() + self._options.commit_interval_s
        self._finished = 0
        changed = {part.topic_partition: part for part in partitions if part.dirty and not part.closed}
        if not changed:
            return True
        if self.failure is not None:
            return False
        positions = {
            topic_partition: part.to_commit(self._options.metadata_units_max)
            for topic_partition, part in changed.items()
        }
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
            self._log.log(logging.INFO, "commit_again", None, "commits are acknowledged again")
        self.error = self.error_reason = ""
        for topic_partition, position in positions.items():
            changed[topic_partition].committed = position
            changed[topic_partition].dirty = False
        self._on_committed(positions)
        return True

    def _note(self, error: ConsumerError) -> None:
        reason = error.reason if error.reason in COMMIT_FAILURES else "other"
        self._metrics.commits.labels("failed").inc()
        self._metrics.commit_failures.labels(reason).inc()
        self.error, self.error_reason = error.message, error.reason
        self._log.log(logging.WARNING, f"commit_{reason}", None, "commit failed (%s): %s", error.reason, error.message)
