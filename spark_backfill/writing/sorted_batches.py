"""Sorted batches: convert a task's Arrow batches to rows for the chunk writer, and its counts to an Arrow batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Row

from spark_backfill.writing.chunk_writer import Written
from spark_backfill.writing.detail_columns import details_of, values_of
from spark_backfill.writing.fragments import SortedRows

RECEIPT_SCHEMA = ", ".join(f"{name} bigint" for name in asdict(Written()))


def sorted_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[SortedRows]:
    """Rows from batches with the columns of SortedRows by name, and those of `details_of`. Ids are int64 with the bits
    of the uint64."""
    for batch in batches:
        if batch.num_rows:
            details = details_of(batch)
            yield SortedRows(
                _column(batch, "partition").astype(np.int32, copy=False),
                _column(batch, "pack_id").view(np.uint64),
                _column(batch, "window_start_ms"),
                _column(batch, "range_number").astype(np.int32, copy=False),
                _column(batch, "series_id").view(np.uint64),
                _column(batch, "ts_ms"),
                values_of(batch, details),
                details,
            )


def receipt(written: Written) -> pa.RecordBatch:
    """One row of RECEIPT_SCHEMA, the result that a successful task sends to the driver."""
    return pa.RecordBatch.from_pydict({name: pa.array([n], pa.int64()) for name, n in asdict(written).items()})


def written_by(receipts: Iterable[Row]) -> Written:
    """The sum of all receipts."""
    total = Written()
    for each in receipts:
        total = total.plus(Written(**each.asDict()))
    return total


def _column(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    column = batch.column(batch.schema.get_field_index(name))
    assert not column.null_count, f"column {name} has nulls"
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values
