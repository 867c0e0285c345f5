"""Assignment: builds the state of an assigned partition from its commit: next offset, finished offsets above it,
attempts.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from tsdb.parallel_consumer.errors import MetadataRefused
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.offsets.attempt_history import AttemptHistory
from tsdb.parallel_consumer.offsets.metadata import CommitMetadata, decode_metadata
from tsdb.parallel_consumer.offsets.partition import PartitionState
from tsdb.parallel_consumer.offsets.tracker import OffsetTracker
from tsdb.parallel_consumer.record import Position, TopicPartition

log = logging.getLogger(__name__)


def assigned_partition(
    topic_partition: TopicPartition,
    start: Position,
    topic_id: str,
    generation: int,
    now: float,
    metrics: ConsumerMetrics,
    *,
    accept_replay: bool,
) -> PartitionState:
    """State of a newly assigned partition. now: monotonic seconds.

    Raises MetadataRefused for a commit that cannot be trusted; accept_replay allows all but wrong_topic.
    """
    progress = _decode(topic_partition, start, topic_id, metrics, accept_replay)
    tracker = OffsetTracker(start.next_offset, progress.finished)
    attempts = AttemptHistory(
        replace(one, crashes=one.crashes + one.running, running=False) for one in progress.attempts
    )
    # Without a commit of ours, commit the start before anything is finished: a later member then starts there too, not
    # at the end or the first offset of the log at that time.
    fresh = not start.metadata
    return PartitionState(
        topic_partition, generation, topic_id, tracker, now, start.next_offset, attempts, arrived_at=now, dirty=fresh
    )


def _decode(
    topic_partition: TopicPartition, start: Position, topic_id: str, metrics: ConsumerMetrics, accept_replay: bool
) -> CommitMetadata:
    try:
        return decode_metadata(start.next_offset, start.metadata, topic_id)
    except MetadataRefused as error:
        topic, partition = topic_partition
        message = f"topic {topic}, partition {partition}, commit of offset {start.next_offset}: {error.message}"
        # Records of another topic below the committed offset were never handled, so a replay would skip them.
        if not accept_replay or error.reason == "wrong_topic":
            raise MetadataRefused(message, reason=error.reason) from error
        metrics.metadata_refused.inc()
        log.warning("%s; accepted: all records from there on are repeated", message)
        return CommitMetadata()
