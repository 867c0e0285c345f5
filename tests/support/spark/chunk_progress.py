"""Progress of a chunk stage that has emitted all windows, for jobs that wait for the stage."""

from __future__ import annotations

from support.servers.loaders import is_loaded
from support.servers.logs import wait_until
from tsdb.codec.chunk.key import ProgressKey, encode_key
from tsdb.codec.chunk.marker import ProgressMarker, encode_progress_marker
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import CHUNKS, METRICS, Log

EVERYTHING = 1 << 60


def write_progress(log: Log) -> None:
    """Append a tick and such a marker to each partition, and wait for the loader."""
    topic_id = log.topic_id(METRICS)
    for partition in range(log.partitions(METRICS)):
        log.append_sync(METRICS, partition, encode_tick())
        marker = encode_progress_marker(ProgressMarker(topic_id, EVERYTHING, EVERYTHING, 0))
        log.append_sync(CHUNKS, partition, marker, key=encode_key(ProgressKey()))
    wait_until(lambda: is_loaded(log))
