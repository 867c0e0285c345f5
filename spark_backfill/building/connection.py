"""Connection: one log a Python worker, kept from task to task, for opening one takes longer than many a task."""

from __future__ import annotations

from spark_backfill.places import Places
from tsdb.log.interface import METRICS, Log
from tsdb.model.errors import WrongTopic

# One task at a time runs in a worker, and nearly always they are of one log.
_open: dict[Places, Log] = {}


def worker_log(places: Places, topic_id: str) -> Log:
    """The log of this worker. Raises WrongTopic (topic_recreated) when it is not the one that offsets are of."""
    log = _open.get(places)
    # A log keeps to the incarnation that it saw first; the worker outlives that.
    if log is None or log.topic_id(METRICS) != topic_id:
        while _open:
            _open.popitem()[1].close()
        log = _open[places] = places.open_log()
    check_topic(log, topic_id)
    return log


def check_topic(log: Log, topic_id: str) -> None:
    """Raises WrongTopic (topic_recreated): offsets of another incarnation of the log must not be used here."""
    found = log.topic_id(METRICS)
    if found != topic_id:
        raise WrongTopic(
            f"what is to be done is of topic id {topic_id}; the log's is {found}: it was made anew",
            reason="topic_recreated",
            want=topic_id,
            got=found,
        )
