"""Detail columns: convert the Arrow columns of rows with histograms and start timestamps. Knows nothing of Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tsdb.codec.histogram_rows import read_details
from tsdb.model.details import SampleDetails

_SPANS = "array<struct<offset:int,length:int>>"
HISTOGRAM_DDL = (
    "struct<schema:int,zero_threshold:double,zero_count:double,count:double,sum:double,"
    f"positive_spans:{_SPANS},positive_counts:array<double>,negative_spans:{_SPANS},negative_counts:array<double>,"
    "custom_bounds:array<double>,reset_hint:string,is_integer:boolean>"
)
"""Type of the column `histogram`, as Spark names it."""


def details_of(batch: pa.RecordBatch) -> SampleDetails | None:
    """The details in the columns `histogram`, structs, and `start_ms`, null where a row has none. Raises CorruptData
    (corrupt_row)."""
    starts = pc.multiply(pc.fill_null(batch.column("start_ms"), 0), 1000)
    return read_details(batch.column("histogram"), starts)


def values_of(batch: pa.RecordBatch, details: SampleDetails | None) -> NDArray[np.float64]:
    """The column `value`, which is null for histograms; their sums in its place."""
    values = batch.column("value")
    if details is None or details.histograms is None or details.histogram_of is None:
        assert not values.null_count, "column value has nulls"
        return values.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    where = details.histogram_of >= 0
    found: NDArray[np.float64] = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False).copy()
    found[where] = details.histograms.sums[details.histogram_of[where]]
    return found
