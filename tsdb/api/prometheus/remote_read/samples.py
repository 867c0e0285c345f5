"""Answer SAMPLES of remote read: one ReadResponse, compressed with snappy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cramjam

from tsdb.api.prometheus.answer import Representation
from tsdb.api.prometheus.remote_read.selection import selection
from tsdb.api.prometheus.remote_read.wire import SAMPLE_BYTES_MAX, message_head, sample_fields
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.v1 import remote_read_pb2

CONTENT_TYPE = "application/x-protobuf"
LABEL_COPIES = 2  # In the message a label has a few bytes more than here.
# Copies: the parts of the message, the message, and its compressed form, which is at most a sixth larger.
MESSAGE_COPIES = 3.25
# Field number of results and of time series; both have the number 1.
_REPEATED = 1


def message_bytes(found: Sequence[StoredSeries]) -> int:
    """Upper bound of the memory of the message."""
    plain = sum(SAMPLE_BYTES_MAX * len(one.ts_ms) + LABEL_COPIES * sum(map(len, one.labels)) for one in found)
    return int(MESSAGE_COPIES * plain)


def samples_answer(found: Sequence[StoredSeries], check: Callable[[], None]) -> Representation:
    """found: results in the order of the queries. check: raises when the request has ended."""
    parts: list[bytes | memoryview] = []
    for stored in found:
        result: list[bytes | memoryview] = []
        fields = sample_fields(stored.ts_ms, stored.values)
        for series in selection(stored):
            check()
            labels = remote_read_pb2.TimeSeries(labels=series.labels).SerializeToString()
            samples = fields[series.samples].reshape(-1).data
            result += (message_head(_REPEATED, len(labels) + len(samples)), labels, samples)
        parts += (message_head(_REPEATED, sum(map(len, result))), *result)
    compressed = bytes(cramjam.snappy.compress_raw(b"".join(parts)))
    return Representation(iter((compressed,)), CONTENT_TYPE, (("content-encoding", "snappy"),))
