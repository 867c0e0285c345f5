"""RecordColumns: keeps records of one partition as columns, without a Python object for each record.

The client library's messages stay unchanged; a column is built on access.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.parallel_consumer.record import Headers, Record, TopicPartition

# Builds one column: the named field of each row. Names are those of Record.
Field = Callable[[Sequence[Any], str], list[Any]]


class RecordColumns:
    """Records of one partition in order. offsets: int64 (n,), ascending. A null record has None among the values."""

    __slots__ = ("_field", "_rows", "offsets", "partition", "topic")

    def __init__(
        self, topic: str, partition: int, offsets: NDArray[np.int64], rows: Sequence[Any], field: Field
    ) -> None:
        assert len(offsets) == len(rows) > 0, f"{len(offsets)} offsets of {len(rows)} rows"
        self.topic = topic
        self.partition = partition
        self.offsets = offsets
        self._rows = rows
        self._field = field

    @classmethod
    def of(cls, records: Sequence[Record]) -> RecordColumns:
        """Columns of records of one partition."""
        first = records[0]
        offsets = np.array([record.offset for record in records], np.int64)
        return cls(first.topic, first.partition, offsets, records, _of_records)

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def topic_partition(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def keys(self) -> list[bytes | None]:
        """Key of each record."""
        return self._field(self._rows, "key")

    @property
    def values(self) -> list[bytes | None]:
        """Value of each record."""
        return self._field(self._rows, "value")

    @property
    def headers(self) -> list[Headers]:
        """Headers of each record."""
        return self._field(self._rows, "headers")

    @property
    def timestamps_ms(self) -> NDArray[np.int64]:
        """int64 (n,), ms since epoch UTC, as given by the source."""
        return np.array(self._field(self._rows, "timestamp_ms"), np.int64)

    @property
    def size(self) -> int:
        """Bytes of the values, and of the keys where the source counts them at no extra cost."""
        return sum(self._field(self._rows, "size"))

    def arrow(self) -> Any:
        """A pyarrow.RecordBatch: offset and timestamp_ms int64, key and value binary with nulls."""
        import pyarrow as pa  # Imported here because it is large and few callers need it.

        return pa.record_batch(
            {
                "offset": pa.array(self.offsets),
                "timestamp_ms": pa.array(self.timestamps_ms),
                "key": pa.array(self.keys, pa.binary()),
                "value": pa.array(self.values, pa.binary()),
            }
        )

    def record(self, row: int) -> Record:
        """One row as a record."""
        rows = self._rows[row : row + 1]
        names = ("key", "value", "timestamp_ms", "headers")
        key, value, timestamp_ms, headers = (self._field(rows, name)[0] for name in names)
        return Record(self.topic, self.partition, int(self.offsets[row]), key, value, timestamp_ms, headers)

    def part(self, start: int, end: int) -> RecordColumns:
        """The columns of rows [start, end)."""
        return RecordColumns(self.topic, self.partition, self.offsets[start:end], self._rows[start:end], self._field)

    def ranges(self, keep: NDArray[np.bool_]) -> Iterator[tuple[int, RecordColumns]]:
        """Runs of rows to keep, each with its first row. keep: bool (n,)."""
        edges = np.flatnonzero(np.diff(keep.astype(np.int8), prepend=np.int8(0), append=np.int8(0)))
        for start, end in edges.reshape(-1, 2).tolist():
            yield start, self.part(start, end)


def _of_records(records: Sequence[Any], name: str) -> list[Any]:
    return [getattr(record, name) for record in records]
