"""Answer SAMPLES of remote read: one ReadResponse, compressed with snappy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cramjam
import numpy as np

from tsdb.api.prometheus.answer import Representation
from tsdb.api.prometheus.remote_read.histograms import histogram_fields, histograms_bytes
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
    details = [one.details for one in found if one.details is not None]
    plain += sum(histograms_bytes(one.histograms) for one in details if one.histograms is not None)
    return int(MESSAGE_COPIES * plain)


def samples_answer(found: Sequence[StoredSeries], check: Callable[[], None]) -> Representation:
    """found: results in the order of the queries. check: raises when the request has ended."""
    parts: list[bytes | memoryview] = []
    for stored in found:
        result: list[bytes | memoryview] = []
        fields = _Fields(stored)
        for series in selection(stored):
            check()
            labels = remote_read_pb2.TimeSeries(labels=series.labels).SerializeToString()
            samples = fields.of(series.samples)
            result += (message_head(_REPEATED, len(labels) + sum(map(len, samples))), labels, *samples)
        parts += (message_head(_REPEATED, sum(map(len, result))), *result)
    compressed = bytes(cramjam.snappy.compress_raw(b"".join(parts)))
    return Representation(iter((compressed,)), CONTENT_TYPE, (("content-encoding", "snappy"),))


class _Fields:
    """The fields of the samples of a result: floats, and histograms where there are some."""

    def __init__(self, stored: StoredSeries) -> None:
        self._samples = sample_fields(stored.ts_ms, stored.values)
        details = stored.details
        self._is_float = None
        if details is None or details.histograms is None or details.histogram_of is None:
            return
        self._is_float = details.histogram_of < 0
        columns = details.histograms.take(details.histogram_of[~self._is_float])
        self._histograms, self._starts = histogram_fields(columns, stored.ts_ms[~self._is_float])
        self._before = np.concatenate((np.zeros(1, np.int64), np.cumsum(~self._is_float)))

    def of(self, samples: slice) -> list[memoryview]:
        """The fields of these samples."""
        if self._is_float is None:
            return [self._samples[samples].reshape(-1).data]
        floats = self._samples[samples][self._is_float[samples]]
        first, last = self._starts[self._before[[samples.start, samples.stop]]].tolist()
        return [floats.reshape(-1).data, self._histograms[first:last].data]
