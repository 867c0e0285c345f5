"""Partition series: the series announced in one partition of the log, read on when a sample has an unknown series.

A worker keeps them from task to task, so `series` is read once and then continued. The labels of an id never change, so
one table serves every query.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_backfill.source.series_table import ABSENT, LabelColumns
from spark_backfill.worker_log import batches_between
from tsdb.codec.records.record_status import STATUS_CORRUPT, STATUS_UNKNOWN_VERSION
from tsdb.codec.records.series_record import decode_announcements
from tsdb.index.index import SeriesIndex
from tsdb.index.series_table_kernels import NO_REF
from tsdb.log.interface import SERIES, Log, RecordBatch
from tsdb.model.errors import Overloaded, UnknownVersion
from tsdb.model.selector import Matcher


class PartitionSeries:
    """Series by row number, in the order of their announcement. Used by one thread."""

    def __init__(self) -> None:
        self._index = SeriesIndex()
        self._next_offset = 0
        self._columns = LabelColumns(self._canonical)
        self._chosen: tuple[tuple[Matcher, ...], int, NDArray[np.bool_]] | None = None

    @property
    def nbytes(self) -> int:
        """Memory of the labels, the index and the columns."""
        return self._index.bytes() + self._columns.nbytes

    def read_on(self, log: Log, partition: int) -> None:
        """Read `series` up to its present end. A corrupt announcement is skipped: its series stays unknown.

        Raises UnknownVersion, and the errors of the log.
        """
        mark = log.watermarks(SERIES, [partition])[partition]
        for batch in batches_between(log, SERIES, partition, max(mark.low, self._next_offset), mark.high):
            self._register(batch)
        self._next_offset = mark.high

    def find(self, series_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Row of each id, int64 (n,). ABSENT for an id without an announcement in the records read so far."""
        refs = self._index.table.find(series_ids)
        return np.where(refs == NO_REF, ABSENT, refs.astype(np.int64))

    def chosen(self, matchers: tuple[Matcher, ...]) -> NDArray[np.bool_]:
        """Whether each row satisfies all matchers, bool (rows,)."""
        generation = self._index.generation
        if self._chosen is None or self._chosen[:2] != (matchers, generation):
            chosen = np.zeros(self._index.refs_size, np.bool_)
            chosen[self._index.select(matchers)] = True
            self._chosen = matchers, generation, chosen
        return self._chosen[2]

    def labels(self, of: pa.Field, rows: NDArray[np.int64]) -> pa.Array:
        """Column `of` for these rows: `labels`, a map of text, or one label as text, null where it is absent."""
        return self._columns.take(of, rows, self._index.refs_size)

    def _register(self, batch: RecordBatch) -> None:
        records = decode_announcements(batch.keys, batch.key_starts, batch.values, batch.value_starts)
        unknown = np.flatnonzero(records.status == STATUS_UNKNOWN_VERSION)
        if len(unknown):
            raise UnknownVersion(
                f"topic {SERIES}, partition {batch.partition}, record {int(batch.offsets[unknown[0]])}: a newer"
                " writer's record"
            )
        if batch.null_values is not None:
            records.status[batch.null_values] = STATUS_CORRUPT
        self._index.register(records, batch.values, batch.broker_ms)
        self._next_offset = int(batch.offsets[-1]) + 1

    def _canonical(self, rows: NDArray[np.int64]) -> list[bytes]:
        joined, lengths = self._index.labels_of(rows.astype(np.uint32))
        ends = np.cumsum(lengths, dtype=np.int64).tolist()
        return [bytes(joined[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]


class SeriesCache:
    """Partition series of a worker process, the least recently used first. Used by one thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], PartitionSeries] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, series_topic_id: str, partition: int) -> PartitionSeries:
        """The series of one partition; empty at first use."""
        found = self._kept.setdefault((series_topic_id, partition), PartitionSeries())
        self._kept.move_to_end((series_topic_id, partition))
        return found

    def bound(self, bytes_max: int) -> None:
        """Drop partitions until at most bytes_max bytes are kept, never the one in use.

        Raises Overloaded (labels_bytes) when the partition in use alone has more.
        """
        sizes = {key: series.nbytes for key, series in self._kept.items()}
        total = sum(sizes.values())
        *others, (_, partition) = self._kept
        for key in others:
            if total <= bytes_max:
                return
            del self._kept[key]
            total -= sizes[key]
        if total > bytes_max:
            self._kept.clear()
            raise Overloaded(
                f"partition {partition}: its series take {total} bytes in a worker; limit is {bytes_max}: raise the"
                " option labels_bytes_max, or read without labels and selector",
                reason="labels_bytes",
                limit=bytes_max,
                asked=total,
            )


worker_series = SeriesCache()
"""Shared in this process: a Spark worker runs one task at a time."""
