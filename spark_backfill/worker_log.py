"""Worker log: one open log in each Python worker, reused by its tasks: opening it takes longer than many tasks.

Reads a range of offsets of one topic partition, for tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spark_backfill.places import Places
from tsdb.log.interface import METRICS, EndOfLog, Log, RecordBatch
from tsdb.model.errors import Unavailable, WrongTopic

# A worker runs one task at a time, and nearly all tasks use the same log.
_open: dict[Places, Log] = {}

POLL_S = 0.5
SILENT_POLLS_MAX = 60  # The broker counts as unavailable after 30 s without an event.
PREFETCH_BYTES = 16 << 20


def worker_log(places: Places, topic_id: str) -> Log:
    """The log of this worker. Raises WrongTopic (topic_recreated) when its topic id is not `topic_id`."""
    log = _open.get(places)
    # A log object stays with the topic id that it read first; the worker may outlive that topic.
    if log is None or log.topic_id(METRICS) != topic_id:
        close_worker_log()
        log = _open[places] = places.open_log()
    check_topic(log, topic_id)
    return log


def close_worker_log() -> None:
    """Close the log of this worker, if it has one. A later call of `worker_log` opens another one."""
    while _open:
        _open.popitem()[1].close()


def check_topic(log: Log, topic_id: str) -> None:
    """Raises WrongTopic (topic_recreated) when the log topic has another id: offsets of the old topic mean nothing."""
    found = log.topic_id(METRICS)
    if found != topic_id:
        raise WrongTopic(
            f"the work belongs to topic id {topic_id}; the log's is {found}: it was made anew; begin the work again",
            reason="topic_recreated",
            want=topic_id,
            got=found,
        )


def batches_between(log: Log, topic: str, partition: int, start: int, end: int) -> Iterator[RecordBatch]:
    """The records of offsets [start, end), in order. Raises Unavailable (log_unavailable), and the errors of a
    reader."""
    if start >= end:
        return
    silent = 0
    with log.reader({(topic, partition): start}, prefetch_bytes=PREFETCH_BYTES) as reader:
        while silent < SILENT_POLLS_MAX:
            events = reader.poll(POLL_S)
            silent = 0 if events else silent + 1
            for event in events:
                if isinstance(event, EndOfLog):
                    return
                inside = int(np.searchsorted(event.offsets, end))
                if inside:
                    yield event.first(inside)
                if inside < len(event.offsets) or int(event.offsets[-1]) >= end - 1:
                    return
    raise Unavailable(
        f"topic {topic}, partition {partition}: the log does not answer a reader", reason="log_unavailable"
    )
