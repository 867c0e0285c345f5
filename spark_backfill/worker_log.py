"""Worker log: one open log in each Python worker, reused by its tasks: opening it takes longer than many tasks."""

from __future__ import annotations

from spark_backfill.places import Places
from tsdb.log.interface import METRICS, Log
from tsdb.model.errors import WrongTopic

# A worker runs one task at a time, and nearly all tasks use the same log.
_open: dict[Places, Log] = {}


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
