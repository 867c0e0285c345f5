"""Assignment: builds the state of an assigned partition from its commit: next offset, finished offsets above it,
attempts.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from tsdb.parallel_consumer.errors import MetadataRefused
from tsdb.parallel_consumer.metadata import Progress, decode_metadata
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.record import Partition, Position
from tsdb.parallel_consumer.tracker import OffsetTracker
from tsdb.parallel_consumer.tried import Tried

log = logging.getLogger(__name__)


def begun(
    place: Partition,
    start: Position,
    topic_id: str,
    epoch: int,
    now: float,
    metrics: ConsumerMetrics,
    *,
    accept_replay: bool,
) -> PartitionWork:
    """State of a newly assigned partition. now: monotonic seconds.

    Raises MetadataRefused for a commit that cannot be trusted, unless accept_replay.
    """
    progress = _read(place, start, topic_id, metrics, accept_replay)
    tracker = OffsetTracker(start.next_offset, progress.finished)
    tries = Tried(replace(one, crashes=one.crashes + one.running, running=False) for one in progress.tries)
    # Without a commit of ours, commit the start before anything is finished: a later member then starts there too, not
    # at the end or the first offset of the log at that time.
    fresh = not start.metadata
    return PartitionWork(place, epoch, topic_id, tracker, now, start.next_offset, tries, came_at=now, dirty=fresh)


def _read(place: Partition, start: Position, topic_id: str, metrics: ConsumerMetrics, accept_replay: bool) -> Progress:
    try:
        return decode_metadata(start.next_offset, start.metadata, topic_id)
    except MetadataRefused as error:
        topic, partition = place
        message = f"topic {topic}, partition {partition}, commit of offset {start.next_offset}: {error.message}"
        if not accept_replay:
            raise MetadataRefused(message, reason=error.reason) from error
        metrics.metadata_refused.inc()
        log.warning("%s; accepted: everything from there on is done again", message)
        return Progress()
