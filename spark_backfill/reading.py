"""Reads a range of offsets of one topic partition, for tasks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tsdb.log.interface import EndOfLog, Log, RecordBatch
from tsdb.model.errors import Unavailable

POLL_S = 0.5
SILENT_POLLS_MAX = 60  # After 30 s without an event the broker counts as unavailable.
PREFETCH_BYTES = 16 << 20


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
