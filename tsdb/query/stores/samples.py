"""Store samples: one partition of a store's RAW answer, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.client.wire import F64, I64, U32, U64, block_labels, malformed, unpack
from tsdb.v1 import reader_pb2


@dataclass(frozen=True, slots=True)
class StoreSamples:
    """Samples of s series, n in all, of one partition.

    series_ids: uint64 (s,), ascending. labels: canonical, one per series. counts: int64 (s,). ts_ms: int64 (n,),
    ascending within a series. values: float64 (n,). orders: int64 (n,), the offset of a sample below coverage, -1
    above.
    """

    series_ids: NDArray[np.uint64]
    labels: list[bytes]
    counts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64]

    def since(self, start_ms: int) -> StoreSamples:
        """The samples from start_ms on. Series without samples stay in the result."""
        keep = self.ts_ms >= start_ms
        series = np.repeat(np.arange(len(self.counts)), self.counts)[keep]
        counts = np.bincount(series, minlength=len(self.counts)).astype(np.int64)
        return StoreSamples(
            self.series_ids, self.labels, counts, self.ts_ms[keep], self.values[keep], self.orders[keep]
        )


NO_SAMPLES = StoreSamples(
    np.empty(0, np.uint64),
    [],
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.float64),
    np.empty(0, np.int64),
)


def store_samples_of(messages: Sequence[reader_pb2.SelectResponse]) -> StoreSamples:
    """Decode all messages of one partition in a RAW answer. Raises CorruptData (answer_malformed)."""
    blocks = [block for message in messages for block in message.series]
    if len(blocks) != 1:
        raise malformed(f"{len(blocks)} series blocks of one partition")
    series_ids = unpack(blocks[0].series_ids, U64, "series_ids")
    counts = np.zeros(len(series_ids), np.int64)
    ts_ms: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    orders: list[NDArray[np.int64]] = []
    for frame in (frame for message in messages for frame in message.raw):
        found = unpack(frame.counts, U32, "counts")
        if frame.first_series + len(found) > len(counts):
            raise malformed(f"a frame of series {frame.first_series} to {frame.first_series + len(found)}")
        counts[frame.first_series : frame.first_series + len(found)] += found
        total = int(found.sum(dtype=np.int64))
        ts_ms.append(unpack(frame.ts_ms, I64, "ts_ms", total))
        values.append(unpack(frame.values, F64, "values", total))
        orders.append(_orders(frame, total))
    return StoreSamples(
        series_ids,
        block_labels(blocks[0], len(series_ids)),
        counts,
        _joined(ts_ms, np.int64),
        _joined(values, np.float64),
        _joined(orders, np.int64),
    )


def _orders(frame: reader_pb2.RawFrame, total: int) -> NDArray[np.int64]:
    return unpack(frame.orders, I64, "orders", total) if frame.orders else np.full(total, -1, np.int64)


def _joined(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate(parts) if parts else np.empty(0, dtype)
