"""Answer STREAMED_XOR_CHUNKS of remote read: frames of chunks, written while those before are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.api.prometheus.answer import Representation
from tsdb.api.prometheus.remote_read.selection import selection
from tsdb.api.prometheus.remote_read.wire import varint
from tsdb.api.prometheus.remote_read.xor_chunk import xor_chunks
from tsdb.codec.crc32c import crc32c
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.v1 import remote_read_pb2

CONTENT_TYPE = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
FRAME_BYTES_MAX = 1 << 20  # Bytes of the chunks of a frame; the default of Prometheus.


def chunks_answer(found: Sequence[StoredSeries]) -> Representation:
    """found: results in the order of the queries."""
    return Representation(_frames(found), CONTENT_TYPE)


def _frames(found: Sequence[StoredSeries]) -> Iterator[bytes]:
    for query_index, stored in enumerate(found):
        for series in selection(stored):
            for chunks in _groups(stored.ts_ms[series.samples], stored.values[series.samples]):
                one = remote_read_pb2.ChunkedSeries(labels=series.labels, chunks=chunks)
                message = remote_read_pb2.ChunkedReadResponse(chunked_series=[one], query_index=query_index)
                yield _frame(message.SerializeToString())


def _frame(message: bytes) -> bytes:
    """Encode size, CRC-32C with the highest byte first, and message."""
    return varint(len(message)) + crc32c(message).to_bytes(4, "big") + message


def _groups(ts_ms: NDArray[np.int64], values: NDArray[np.float64]) -> Iterator[list[remote_read_pb2.Chunk]]:
    """The chunks of each frame."""
    group: list[remote_read_pb2.Chunk] = []
    size = 0
    for min_time_ms, max_time_ms, data in xor_chunks(ts_ms, values):
        if group and size + len(data) > FRAME_BYTES_MAX:
            yield group
            group, size = [], 0
        group.append(
            remote_read_pb2.Chunk(
                min_time_ms=min_time_ms, max_time_ms=max_time_ms, type=remote_read_pb2.Chunk.XOR, data=data
            )
        )
        size += len(data)
    yield group
