"""Announce: tasks write series to the `series` topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_backfill.failures import quoted_errors
from spark_backfill.places import Places
from spark_backfill.writing.appender import TaskAppender
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.rows import unsigned
from tsdb.log.interface import SERIES


@dataclass(frozen=True, slots=True)
class Announce:
    """A function that Spark sends to tasks."""

    places: Places

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: announce each row of partition, pack_id, series_id, epoch, canonical.

        Yields one row, `records`, when the log has all of them.
        """
        first = next(iter(batches := iter(batches)), None)
        if first is None:
            return
        with quoted_errors(), self.places.open_log() as log:
            appender = TaskAppender(log, SERIES)
            send(appender, first)
            for batch in batches:
                send(appender, batch)
            appender.finish()
        yield pa.RecordBatch.from_pydict({"records": pa.array([appender.sent_records], pa.int64())})


def send(appender: TaskAppender, batch: pa.RecordBatch) -> None:
    """Send one announcement for each row."""
    names = ("partition", "pack_id", "series_id", "epoch", "canonical")
    for partition, pack_id, series_id, epoch, canonical in zip(
        *(batch.column(name).to_pylist() for name in names), strict=True
    ):
        key, value = encode_announcement(unsigned(series_id), epoch, unsigned(pack_id), canonical)
        appender.send(partition, key, value)
