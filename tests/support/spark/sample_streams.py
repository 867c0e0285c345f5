"""Streams of samples: batches planned and read in this process, by the calls that Spark makes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition

from spark_backfill.data_source import TsdbDataSource
from spark_backfill.places import Places
from spark_backfill.source.columns import sample_schema
from support.servers.histories import META
from support.servers.logs import LogFactory
from tsdb.log.interface import Log
from tsdb.log.meta import write_meta

Row = tuple[tuple[tuple[str, str], ...], int, int]
"""Labels, ts_ms, bits of the value."""


def make_log(logs: LogFactory, *, timestamp_type: str = "LogAppendTime") -> Log:
    """Empty topics, with settings in `meta`."""
    logs.create(META.partitions, timestamp_type=timestamp_type)
    log = logs.open()
    write_meta(log, META)
    return log


def source(places: Places, **options: object) -> TsdbDataSource:
    """The data source with these options, as Spark makes it."""
    given = {**places.options(), **{name: str(value) for name, value in options.items()}}
    return TsdbDataSource(CaseInsensitiveDict(given))


def read_now(places: Places, **options: object) -> list[Row]:
    """All rows of the batch source `log`, with all versions."""
    reader = source(places, source="log", versions="all", **options).reader(sample_schema())
    parts = reader.partitions()
    return rows_of([batch for part in parts for batch in reader.read(part)])


class SampleStream:
    """A query on a stream. `offset` is its checkpoint; `restart` begins it again in a new process."""

    def __init__(self, places: Places, **options: object) -> None:
        self._source = source(places, **options)
        self.reader = self._source.streamReader(sample_schema())
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def restart(self) -> None:
        """A new reader over the same checkpoint, which is JSON text."""
        self.reader.stop()
        self.reader = self._source.streamReader(sample_schema())
        self.offset = json.loads(json.dumps(self.offset))

    def plan(self) -> dict[str, Any]:
        """The offset at the end of the next batch."""
        return self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())

    def batch(self) -> list[Row] | None:
        """Rows of the next batch; None when nothing is new."""
        end = self.plan()
        if end == self.offset:
            return None
        rows = self.read(end)
        self.offset = end
        return rows

    def read(self, end: dict[str, Any]) -> list[Row]:
        """Rows of the batch from the checkpoint to `end`."""
        return self.rows(self.reader.partitions(self.offset, end))

    def rows(self, parts: Sequence[InputPartition]) -> list[Row]:
        """Rows of these parts."""
        return rows_of([batch for part in parts for batch in self.reader.read(part)])

    def to_end(self, *, restarts: bool = False) -> list[Row]:
        """Rows of all batches up to the end of the log."""
        found: list[Row] = []
        while (rows := self.batch()) is not None:
            found += rows
            if restarts:
                self.restart()
        return found


def rows_of(batches: list[pa.RecordBatch] | pa.Table) -> list[Row]:
    """Rows in their order."""
    table = pa.Table.from_batches(batches) if isinstance(batches, list) and batches else batches
    if isinstance(table, list):
        return []
    labels = [tuple(sorted(pairs)) for pairs in table["labels"].to_pylist()]
    ts_ms = (table["ts"].cast(pa.int64()).to_numpy() // 1000).tolist()
    bits = np.asarray(table["value"].combine_chunks().to_numpy(zero_copy_only=False)).view("u8").tolist()
    return list(zip(labels, ts_ms, bits, strict=True))
