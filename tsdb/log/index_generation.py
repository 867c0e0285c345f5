"""Index generation: informs queriers of series that reached history without passing through the log.

Imports and downsampling announce series of the past. A querier's cached parts of history's index lack these series.
Such a job raises the generation in `meta` once a loader has passed its last record. A loader raises it when it has
loaded a partition anew, before it writes `loaded`: history may have lacked these series for a while.
Format: docs/formats/index-generation.md.
"""

from __future__ import annotations

import json

from tsdb.log.interface import META, METRICS, Log
from tsdb.log.records import read_batches
from tsdb.model.clock import Clock

VERSION = 1
KEY_PREFIX = "index-generation/"
BEFORE_THE_FIRST = 0
POLL_EVERY_S = 0.5  # How often a querier checks the generation while it reads history.
SEEN_AFTER_S = 0.75  # Every answer that begins later uses the new generation.


def raise_generation(log: Log, job_id: str, clock: Clock) -> None:
    """Raise the generation. On return it is durable, and every querier has seen it."""
    append_generation(log, job_id)
    clock.sleep(SEEN_AFTER_S)


def append_generation(log: Log, job_id: str) -> None:
    """Raise the generation. On return it is durable; every querier has seen it SEEN_AFTER_S later."""
    value = json.dumps({"version": VERSION, "job_id": job_id}, sort_keys=True)
    log.append_sync(META, 0, value.encode(), key=generation_key(log.topic_id(METRICS)))


def last_generation(log: Log, topic_id: str, since_offset: int | None = None) -> int | None:
    """The newest generation in `meta` from an offset on (None: from the start); None if there is no generation record.

    A generation is one past the offset of its record, so two jobs at the same time make two generations. Raises as a
    reader does.
    """
    key, found = generation_key(topic_id), None
    for batch in read_batches(log, META, 0, since_offset):
        for record in map(batch.record, range(len(batch.offsets))):
            if record.key == key and record.value is not None:
                found = record.offset + 1
    return found


def generation_key(topic_id: str) -> bytes:
    """Key in `meta` for one incarnation of the log."""
    return f"{KEY_PREFIX}{topic_id}".encode()
